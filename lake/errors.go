package lake

import (
	"errors"
	"fmt"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// txnRetention is the table property by which a table forgets the progress of applications.
const txnRetention = "delta.setTransactionRetentionDuration"

func txnRetentionError(place, value string) error {
	return &freshet.Error{Code: freshet.CodeTxnRetention, Class: freshet.ClassInput, Place: place,
		Msg: fmt.Sprintf("%s is %q: the table would forget the progress of a lane that is quiet for as long, "+
			"and its records would come twice", txnRetention, value),
		Fix: "unset it: ALTER TABLE … UNSET TBLPROPERTIES ('" + txnRetention + "')"}
}

func partitionError(table string, found, wanted []string) error {
	is := "is not partitioned"
	if len(found) > 0 {
		is = "is partitioned by " + strings.Join(found, ", ")
	}
	return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: table,
		Msg: fmt.Sprintf("the table %s, wanted %s, as partition_by says", is, strings.Join(wanted, ", ")),
		Fix: "leave partition_by out, which takes the table as it is; or write to another table, since the columns of " +
			"one that is there cannot change"}
}

// explain gives an error of a table's log or store the code and remedy that a person needs. The cause stays
// reachable, so that store.Retryable still holds of an outage.
func explain(table string, err error) error {
	if err == nil {
		return nil
	}
	e := &freshet.Error{Code: freshet.CodeStoreUnavailable, Class: freshet.ClassEnvironment, Place: table,
		Err: err}
	var known *freshet.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, delta.ErrNoTable):
		e.Code, e.Class, e.Msg = freshet.CodeNoTable, freshet.ClassInput, "no Delta table"
	case errors.Is(err, delta.ErrCorrupt):
		e.Code, e.Class, e.Msg = freshet.CodeCorrupt, freshet.ClassFailure, "the table is damaged"
	case errors.Is(err, delta.ErrUnsupportedFeature):
		e.Code, e.Class, e.Msg = freshet.CodeUnsupported, freshet.ClassInput, "the table cannot be written"
	case errors.Is(err, delta.ErrVersionNotFound):
		e.Code, e.Class, e.Msg = freshet.CodeNoVersion, freshet.ClassInput, "the version is not there"
	case errors.Is(err, delta.ErrConflict):
		e.Code, e.Class, e.Msg = freshet.CodeConflict, freshet.ClassFailure, "other writers kept winning"
	case errors.Is(err, store.ErrPermission):
		e.Code, e.Msg = freshet.CodeStoreRefused, "the store refuses us"
		e.Fix = "check the credentials, and the rights on folder or bucket"
	case errors.Is(err, store.ErrLogStore):
		e.Code, e.Class, e.Msg = freshet.CodeBadValue, freshet.ClassInput, "commits cannot be arbitrated"
		e.Fix = "look at log_store in the project, or at FRESHET_LOG_STORE"
	case errors.Is(err, store.ErrFull):
		e.Code, e.Msg = freshet.CodeStoreFull, "the store is full"
		e.Fix = "make room, but delete nothing in the table's folder: nothing is lost"
	case store.Retryable(err):
		e.Msg = "the store does not answer"
	default:
		return fmt.Errorf("table %s: %w", table, err)
	}
	return e
}
