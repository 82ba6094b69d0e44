package freshet_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/freshet-io/freshet"

// mayImport says, for each part of the tree, which parts of ours its files (tests left out) may import. A
// part is a folder with what is below it; "" is the root package. Below a part everything may import the part
// itself and what is beside it in it.
var mayImport = map[string][]string{
	"":                   {"store"},
	"store":              {},
	"expr":               {},
	"delta":              {"store", "expr"},
	"freshettest":        {""},
	"internal/column":    {},
	"internal/format":    {"", "internal/column"},
	"internal/veil":      {},
	"internal/pgtext":    {},
	"internal/canonical": {},
	"internal/keyindex":  {},
	"internal/metrics":   {""},
	"internal/demo":      {""},
	"kafka":              {""},
	"postgres":           {"", "internal/column", "internal/veil"},
	"transform":          {"", "expr", "internal/pgtext", "internal/veil"},
	"lake":               {"", "delta", "store", "expr", "internal/keyindex"},
	"quality":            {"internal/pgtext"},
	"docs":               {},
	"interop":            {},
	"spec": {"", "delta", "expr", "internal/demo", "internal/format", "internal/veil", "kafka", "lake", "postgres",
		"quality", "store", "transform"},
	"cmd/freshet": {"*"},
	"bench":       {"*"},
}

// onlyIn names the one place of a third-party package, by the beginning of its path.
var onlyIn = map[string][]string{
	"github.com/twmb/franz-go":               {"kafka", "internal/demo"},
	"github.com/jackc/":                      {"postgres"},
	"github.com/aws/":                        {"store/s3"},
	"golang.org/x/oauth2":                    {"store/gcs"},
	"github.com/Azure/":                      {"store/azure"},
	"github.com/spf13/cobra":                 {"cmd/freshet"},
	"github.com/goccy/go-yaml":               {"spec", "cmd/freshet"},
	"github.com/prometheus/":                 {"internal/metrics", "cmd/freshet"},
	"go.opentelemetry.io/":                   {"internal/metrics", "cmd/freshet"},
	"github.com/RoaringBitmap/":              {"delta"},
	"github.com/parquet-go/":                 {}, // tests only
	"github.com/apache/arrow-go/v18/parquet": {"delta", "internal/canonical"},
}

// source is a Go file that is no test.
type source struct {
	path    string // from the root
	folder  string
	imports []string
	doc     bool // it has the package comment
}

// sources parses all Go files of the repository; it does not ask the go command, whose answer the test cache
// would hide.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (file != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil,
			parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{file, path.Dir(file), imported(f), f.Doc != nil && len(f.Doc.Text()) > 40})
		return nil
	})
	if err != nil || len(all) < 50 {
		t.Fatalf("parse the sources: got %d files, %v", len(all), err)
	}
	return all
}

func imported(f *ast.File) []string {
	var paths []string
	for _, s := range f.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// part is the longest key of mayImport that the folder lies in.
func part(folder string) (string, bool) {
	if folder == "." {
		return "", true
	}
	for f := folder; f != "."; f = path.Dir(f) {
		if _, ok := mayImport[f]; ok {
			return f, true
		}
	}
	return "", false
}

// ours is the folder of an import of this module.
func ours(imp string) (string, bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

func TestArchitecture_Imports_PointDown(t *testing.T) {
	for _, s := range sources(t) {
		from, ok := part(s.folder)
		if !ok {
			t.Errorf("%s: the folder has no rule: say in mayImport what it may import", s.path)
			continue
		}
		for _, imp := range s.imports {
			folder, mine := ours(imp)
			if !mine {
				continue
			}
			to, ok := part(folder)
			allowed := mayImport[from]
			if !ok || to != from && !slices.Contains(allowed, to) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s, which %q must not", s.path, imp, from)
			}
		}
	}
}

func TestArchitecture_ThirdParties_InOnePlace(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.imports {
			for prefix, places := range onlyIn {
				in := func(place string) bool { return s.folder == place || strings.HasPrefix(s.folder, place+"/") }
				if strings.HasPrefix(imp, prefix) && !slices.ContainsFunc(places, in) {
					t.Errorf("%s imports %s, which belongs in %v", s.path, imp, places)
				}
			}
		}
	}
}

func TestArchitecture_Imports_NoCycle(t *testing.T) {
	edges := map[string][]string{}
	for _, s := range sources(t) {
		for _, imp := range s.imports {
			if folder, mine := ours(imp); mine {
				edges[s.folder] = append(edges[s.folder], folder)
			}
		}
	}
	state := map[string]int{} // 1: on the way, 2: done
	var visit func(folder string, way []string)
	visit = func(folder string, way []string) {
		if state[folder] == 1 {
			t.Errorf("an import cycle: %v", append(way, folder))
		}
		if state[folder] != 0 {
			return
		}
		state[folder] = 1
		for _, to := range edges[folder] {
			visit(to, append(way, folder))
		}
		state[folder] = 2
	}
	for folder := range edges {
		visit(folder, nil)
	}
}

func TestArchitecture_Packages_HaveOneComment(t *testing.T) {
	comments := map[string][]string{}
	for _, s := range sources(t) {
		if comments[s.folder] == nil {
			comments[s.folder] = []string{}
		}
		if s.doc {
			comments[s.folder] = append(comments[s.folder], s.path)
		}
	}
	for folder, files := range comments {
		if len(files) != 1 {
			t.Errorf("package %s: got a package comment in %v, want it in one file", folder, files)
		}
	}
}

func TestArchitecture_Code_NoInitNoUtil(t *testing.T) {
	for _, s := range sources(t) {
		base := path.Base(s.folder)
		if slices.Contains([]string{"util", "utils", "common", "helpers", "misc"}, base) {
			t.Errorf("%s: a package named %s says nothing", s.path, base)
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(s.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init runs without being asked", s.path)
			}
		}
	}
}
