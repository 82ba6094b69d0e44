package delta

import "github.com/freshet-io/freshet/expr"

// readSet is what a transaction depends on of the version it was begun with.
type readSet struct {
	all   bool
	where []*expr.Expr
	files map[string]bool // by canonical path
}

func (r *readSet) empty() bool { return !r.all && len(r.where) == 0 && len(r.files) == 0 }

// ReadTable says that the transaction depends on all rows of the table, so that a winner that changed any is
// a conflict.
func (tx *Transaction) ReadTable() { tx.reads.all = true }

// ReadWhere says that the transaction depends on the rows for which e is true (nil: on all rows, as ReadTable): a
// winner that added or deleted such rows is a conflict. What a winner did is looked at by partition values and
// statistics. It may be called several times.
func (tx *Transaction) ReadWhere(e *expr.Expr) {
	if e == nil {
		tx.ReadTable()
		return
	}
	tx.reads.where = append(tx.reads.where, e)
}

// ReadFiles says that the transaction depends on all rows of these files: a winner that deleted rows of one is a
// conflict.
func (tx *Transaction) ReadFiles(files ...Add) {
	if tx.reads.files == nil {
		tx.reads.files = map[string]bool{}
	}
	for i := range files {
		tx.reads.files[canonicalPath(files[i].Path)] = true
	}
}
