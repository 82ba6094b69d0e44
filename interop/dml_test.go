package interop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
)

// TestReaders_EachChange_AsTheMatrixSays has the other engines read tables whose rows we changed, and what changed.
func TestReaders_EachChange_AsTheMatrixSays(t *testing.T) {
	t.Parallel()
	needReaders(t)
	wantMatrix(t, "changes", changedFeatures(), false)
}

// changedFeatures are tables whose rows are changed by every operation there is, in each setting that readers must mind.
func changedFeatures() (all []feature) {
	o := structOf("x", delta.Double, "y", delta.Timestamp)
	schema := columns("id", delta.Long, "p", delta.String, "n", delta.Integer,
		"d", delta.Decimal{Precision: 10, Scale: 2}, "o", o)
	for i := range 8 {
		name, properties := "DELETE, UPDATE, MERGE, replaceWhere by rewriting files", []string{}
		if i&1 != 0 {
			name, properties = "DELETE, UPDATE, MERGE, replaceWhere by deletion vectors", []string{"enableDeletionVectors", "true"}
		}
		if i&2 != 0 {
			name, properties = name+", feed", append(properties, "enableChangeDataFeed", "true")
		}
		if i == 3 || i == 4 || i == 6 {
			name, properties = name+", row tracking", append(properties, "enableRowTracking", "true")
		}
		create := property(properties...)
		if i&4 != 0 {
			name, create.PartitionBy = name+", partitions with odd names", []string{"p"}
		}
		all = append(all, feature{name: name, schema: schema, create: create, fill: changeAll})
	}
	return all
}

// salted is rows whose ids run in a range; each is made from its id and a salt.
func (m *made) salted(from, to, salt int) delta.RowSource {
	m.t.Helper()
	var rows []string
	for id := from; id < to; id++ {
		n, o := fmt.Sprint((id*7+salt)%50), fmt.Sprintf(`{"x":%d.5,"y":"2024-02-29T12:00:00.%06dZ"}`, id+salt, id)
		if id%11 == 3 {
			n, o = "null", "null"
		}
		rows = append(rows, fmt.Sprintf(`{"id":%d,"p":%s,"n":%s,"d":"%d.%02d","o":%s}`, id,
			[]string{`"a"`, `"b c"`, `"ü/%"`, "null"}[id%4], n, id, salt%100, o))
	}
	return m.source(nil, strings.Join(rows, ","))
}

// changeAll runs every operation.
func changeAll(m *made) {
	m.t.Helper()
	ctx := context.Background()
	m.write(m.salted(0, 400, 1), nil)
	m.write(m.salted(400, 800, 2), nil)
	m.delete("n < 5")
	m.must(m.table.Update(ctx, []delta.Assignment{m.set("n", "n + 1"), m.set("o.x", "o.x * 2"), m.set("d", "d - 1")},
		m.expr("id % 10 = 4"), nil))
	m.must(m.table.Merge(ctx, m.salted(700, 900, 3), &delta.Merge{On: m.expr("t.id = s.id AND (t.n <> 9 OR t.n IS NULL)"),
		Matched: []delta.MatchedClause{{When: m.expr("s.n IS NULL"), Delete: true},
			{When: m.expr("t.n > 30"), Set: []delta.Assignment{m.set("p", "s.p"), m.set("n", "t.n + s.n")}}, {All: true}},
		NotMatched:         []delta.InsertClause{{When: m.expr("s.id % 3 > 0"), All: true}},
		NotMatchedBySource: []delta.MatchedClause{{When: m.expr("t.id < 20"), Delete: true}},
	}, nil))
	m.write(m.salted(0, 40, 4), &delta.WriteOptions{Mode: delta.WriteReplaceWhere, Where: m.expr("id < 40")})
	m.delete("p = 'b c' AND id > 850")
	m.must(m.table.Merge(ctx, m.salted(890, 950, 5), &delta.Merge{On: m.expr("t.id = s.id"),
		NotMatched: []delta.InsertClause{{All: true}}}, nil))
	m.delete("p = 'a'")
}
