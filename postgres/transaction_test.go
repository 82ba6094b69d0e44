package postgres

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// captured are the messages of one variant of a file of captures.
func captured(t testing.TB, file, variant string) [][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all [][]byte
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m struct{ V, Hex string }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if raw, err := hex.DecodeString(m.Hex); err != nil {
			t.Fatal(err)
		} else if len(raw) > 0 && m.V == variant {
			all = append(all, raw)
		}
	}
	return all
}

// told tells committed transactions in their order, each with its changes, by the names of tables and columns. Those without
// changes are left out.
func told(t *testing.T, payloads [][]byte, memoryBytes int64) (all []string, spilled int) {
	t.Helper()
	a := newAssembler(memoryBytes, t.TempDir())
	defer a.drop()
	tables := map[uint32]*pgoutput.Rel{}
	for i, raw := range payloads {
		tx, err := a.take(raw)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if tx == nil {
			continue
		}
		if tx.file != nil {
			spilled++
		}
		if changes := changesOf(t, tx, tables); changes != "" {
			all = append(all, fmt.Sprintf("%d %d%s", tx.xid, tx.time, changes))
		}
		tx.drop()
	}
	if a.held != 0 || !a.idle() {
		t.Errorf("got %d bytes held at the end, idle %v, want none", a.held, a.idle())
	}
	return all, spilled
}

func changesOf(t *testing.T, tx *transaction, tables map[uint32]*pgoutput.Rel) string {
	t.Helper()
	var s strings.Builder
	r, err := tx.reader()
	for err == nil {
		var m *pgoutput.Message
		if m, err = r.next(); err != nil {
			break
		}
		switch m.Kind {
		case pgoutput.Relation:
			tables[m.Table] = m.Rel
			continue
		case pgoutput.Truncate:
			fmt.Fprintf(&s, "\nT %v", m.Tables)
			continue
		}
		fmt.Fprintf(&s, "\n%c %s", m.Kind, tables[m.Table].Name)
		for _, row := range []pgoutput.Tuple{m.Old, m.New} {
			for i, v := range row {
				fmt.Fprintf(&s, " %s=%c%s", tables[m.Table].Columns[i].Name, v.Kind, v.Data)
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return s.String()
}

// Whichever way the server sends transactions, and whether they fit in memory or not, they are the same.
func TestAssemble_EveryVariant_AsSentWhole(t *testing.T) {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	files, err := filepath.Glob(filepath.Join(root, "cdc", "pg", "pgoutput", "*.pg1?.ndjson"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	streamed, spilled := 0, 0
	for _, file := range files {
		want, _ := told(t, captured(t, file, "v1"), 1<<30)
		for _, variant := range []string{"v1", "v2_streaming", "v4_parallel"} {
			payloads := captured(t, file, variant)
			for _, raw := range payloads {
				if raw[0] == byte(pgoutput.StreamAbort) {
					streamed++
				}
			}
			for _, memoryBytes := range []int64{1 << 30, 100} {
				if len(payloads) == 0 {
					continue
				}
				got, n := told(t, payloads, memoryBytes)
				spilled += n
				if len(got) != len(want) {
					t.Errorf("%s %s: got %d transactions, want %d", file, variant, len(got), len(want))
				}
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("%s %s: transaction %d: got %.400s\nwant %.400s", file, variant, i, got[i], want[i])
					}
				}
			}
		}
	}
	if streamed == 0 || spilled == 0 {
		t.Errorf("got %d aborts in streams and %d spilled transactions, want some of both", streamed, spilled)
	}
}
