package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/store/s3"
)

// ProjectFile is the name of a project's file.
const ProjectFile = "freshet.yaml"

// Project is what the pipelines of one folder share.
type Project struct {
	Dir         string // the project's folder; the current one when there is no project file
	File        string // "" when there is no project file
	Name        string
	Environment string
	Root        Text   // of the lake: a folder or URI
	LogStore    string // of tables on S3: s3.Options.LogStore
	Connections []Named[Connection]
	Defaults    Defaults
	// CutRetention holds for pipelines that do not say otherwise; 0: lake.DefaultCutRetention.
	CutRetention time.Duration

	environments []string
}

// Connection is a named way to an outside system; exactly one field is set.
type Connection struct {
	Kafka *KafkaClient
}

// Defaults hold for all pipelines that do not say otherwise.
type Defaults struct {
	Commit     Commit
	Quarantine Quarantine
	Upkeep     Upkeep
}

func (p *Project) shape() object {
	return object{doc: "A Freshet project: what its pipelines share.", keys: []key{
		{name: "version", doc: "The version of this format: 1.", is: word(new(string), "1")},
		{name: "project", doc: "The project's name.", is: text(&p.Name)},
		{name: "lake", doc: "Where tables are.", is: object{keys: []key{
			{name: "root", doc: "The folder or URI below which table namespace.name is <root>/namespace/name. " +
				"Default: ./lake.",
				is: placed(&p.Root)},
			{name: "log_store", doc: "How commits to tables on S3 exclude those of Spark's S3DynamoDBLogStore: " +
				"dynamodb://TABLE?region=REGION&scheme=s3a, where scheme is that of the URLs by which Spark names the " +
				"tables. Default: FRESHET_LOG_STORE, and without it conditional puts, which Spark does not see.",
				is: logStore(&p.LogStore)},
			{name: "compatibility", later: "leave it out: append tables are readable by every engine (reader 1, " +
				"writer 2)"},
			{name: "catalogs", later: "leave it out and register tables in the catalog by its own means"},
		}}},
		{name: "connections", doc: "Outside systems by name.", is: mapOf(&p.Connections, (*Connection).shape)},
		{name: "defaults", doc: "What holds for pipelines that do not say otherwise.", is: object{keys: []key{
			{name: "commit", doc: "When commits are made.", is: p.Defaults.Commit.shape()},
			{name: "quarantine", doc: "Where records go that cannot be taken.", is: p.Defaults.Quarantine.shape()},
			{name: "upkeep", doc: "How tables are looked after beside the stream; off: they are not.",
				is: p.Defaults.Upkeep.shape()},
			{name: "compatibility", later: "leave it out"},
		}}},
		{name: "environments", doc: "What differs by environment (-e NAME): each has the keys of this file.",
			is: anything{}},
		{name: "alerts", later: "leave it out; alert on /metrics"},
		{name: "catalogs", later: "leave it out"},
		{name: "cut_retention", doc: "For how long vacuum and log cleanup keep the versions that a cut names. Default: 7d.",
			is: duration(&p.CutRetention)},
	}}
}

// logStore is the URL of a log store.
func logStore(into *string) shape {
	return one{json: map[string]any{"type": "string", "pattern": "^dynamodb://"}, parse: func(s string) (string, bool) {
		*into = s
		err := (&s3.Options{LogStore: s}).Validate()
		return "a URL such as dynamodb://delta_log?region=eu-central-1&scheme=s3a", s != "" && err == nil
	}}
}

func (c *Connection) shape() shape {
	return object{
		oneOf: []string{"kafka", "postgres", "mysql", "s3"},
		keys: []key{
			{name: "kafka", doc: "A Kafka cluster.", is: maybe(&c.Kafka, (*KafkaClient).shape)},
			{name: "postgres", later: laterPart}, {name: "mysql", later: laterPart},
			{name: "s3", later: "leave it out: credentials come from AWS_… variables, ~/.aws or the machine's role"},
		}}
}

// anything is a mapping that is read elsewhere.
type anything struct{}

func (anything) read(r *reader, n *node) {
	if n.kind != mapping {
		r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted a mapping", r.found(n))
	}
}

func (anything) schema() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "object"}}
}

// FindProject returns the nearest folder at or above dir that holds a project file, "" when there is none.
func FindProject(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, ProjectFile))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", nil
		}
		dir = up
	}
}

// OpenProject reads the project file of a folder, in one of its environments ("" for none). A dir of "" means
// no project: the current folder, with all defaults. Lenient makes unset variables warnings. Errors:
// Findings, among which may be warnings; the project is usable if all are.
func OpenProject(dir, environment string, lenient bool) (*Project, error) {
	p := &Project{Dir: dir, Environment: environment}
	p.Root.Value = "./lake"
	if dir == "" {
		var err error
		if p.Dir, err = os.Getwd(); err != nil {
			return nil, err
		}
		if environment != "" {
			return nil, &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput,
				Msg: fmt.Sprintf("environment %q: there is no project file %s here or above", environment, ProjectFile),
				Fix: "make one with `freshet init`, or leave -e out"}
		}
		return p, nil
	}
	p.File = filepath.Join(dir, ProjectFile)
	data, err := os.ReadFile(p.File)
	if err != nil {
		return nil, fileError(p.File, err)
	}
	root, err := parse(display(p.File), data)
	if err != nil {
		return nil, Findings{asFinding(err)}
	}
	r := &reader{lookup: systemLookup(environment, lenient)}
	p.overlay(r, root)
	r.expand(root, map[*node]bool{})
	if root.kind != absent {
		r.whole = p.shape()
		r.whole.read(r, root)
	}
	found := r.result()
	if len(found) == 0 {
		return p, nil
	}
	return p, found
}

// overlay puts the keys of the chosen environment over those of the file.
func (p *Project) overlay(r *reader, root *node) {
	all := root.get("environments")
	if all != nil {
		for _, e := range all.pairs {
			p.environments = append(p.environments, e.key.text)
		}
	}
	if p.Environment == "" {
		return
	}
	var over *node
	if all != nil {
		over = all.get(p.Environment)
		for i := range root.pairs { // its variables, and those of the others, are not to be asked for
			if root.pairs[i].key.text == "environments" {
				root.pairs[i].value = &node{kind: mapping, where: all.where}
			}
		}
	}
	if over == nil {
		r.add(root.where, freshet.CodeBadValue, suggest(p.Environment, p.environments),
			"there is no environment %q", p.Environment)
		return
	}
	merge(root, over)
}

// merge puts the pairs of over into base, deeply.
func merge(base, over *node) {
	for _, o := range over.pairs {
		mine := base.get(o.key.text)
		switch {
		case mine == nil:
			base.pairs = append(base.pairs, o)
		case mine.kind == mapping && o.value.kind == mapping:
			merge(mine, o.value)
		default:
			*mine = *o.value
		}
	}
}

// Environments are the names of the project's environments.
func (p *Project) Environments() []string { return p.environments }

// connection returns the connection of this name, nil when there is none, and all names.
func (p *Project) connection(name string) (*Connection, []string) {
	var names []string
	for i := range p.Connections {
		if p.Connections[i].Name == name {
			return &p.Connections[i].Value, nil
		}
		names = append(names, p.Connections[i].Name)
	}
	return nil, names
}

// display is a path as messages show it: relative to the current folder where that is shorter.
func display(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	rel, err := filepath.Rel(wd, abs)
	if err != nil || len(rel) > len(path) && filepath.IsAbs(path) {
		return path
	}
	return filepath.ToSlash(rel)
}

func asFinding(err error) *Finding {
	var f *Finding
	errors.As(err, &f)
	return f
}

func fileError(file string, err error) error {
	e := &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: display(file),
		Msg: "the file cannot be read",
		Err: errors.Unwrap(err)}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Msg, e.Err = "there is no such file", nil
		e.Fix = "name a pipeline file, or make one with `freshet init`"
	case errors.Is(err, fs.ErrPermission):
		e.Class, e.Fix = freshet.ClassEnvironment, "let this user read it"
	}
	return e
}
