package interop_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/demo"
)

// The tour of docs/quickstart-postgres.md goes through to its end, and leaves a project and no server.
func TestQuickstartPostgres_ServerIsFound_TourEnds(t *testing.T) {
	if _, _, err := demo.FindPostgres(""); err != nil {
		t.Skip("needs the programs of a PostgreSQL server: ", err)
	}
	dir := filepath.Join(t.TempDir(), "shop")
	said := command(t, 0, nil, "quickstart", "postgres", "--dir", dir)
	for _, want := range []string{"It has a shop", `"state":"sent"`, `"stock":10`, "update_postimage", "orders equals shop.orders"} {
		if !strings.Contains(said, want) {
			t.Errorf("got\n%s\nwant %q in it", said, want)
		}
	}
	command(t, 0, nil, "lint", dir)
	if said := command(t, 2, nil, "quickstart", "postgres", "--dir", dir); !strings.Contains(said, "found a project") {
		t.Errorf("got %s, want that the folder is taken", said)
	}
}

func TestQuickstartPostgres_NoServer_SaysHowToGetOne(t *testing.T) {
	said := command(t, 3, nil, "quickstart", "postgres", "--dir", filepath.Join(t.TempDir(), "shop"), "--bin", t.TempDir())
	if !strings.Contains(said, "apt install postgresql") {
		t.Errorf("got %s, want how to install a server", said)
	}
}
