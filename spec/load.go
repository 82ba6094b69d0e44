package spec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	freshet "github.com/freshet-io/freshet"
)

// Setting is one value of a pipeline file that comes from elsewhere: a flag.
type Setting struct {
	Path  []string // the keys down to it; a number is the place in a list: "steps", "0", "filter"
	Value any      // a string; a []string for a list; a []Setting with one key each for a mapping
	Place string   // where it comes from: "--filter"
}

// ParseSetting reads path=value, as --set has it: the keys with dots between, then the value as YAML writes
// it.
func ParseSetting(text, place string) (Setting, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok || path == "" {
		return Setting{}, &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: place,
			Msg: "found " + strconv.Quote(text) + ", wanted path=value, such as target.delta.commit.every=5s"}
	}
	return Setting{Path: strings.Split(path, "."), Value: yamlText(value), Place: place + " " + path}, nil
}

// yamlText is a value that is written as in a file.
type yamlText string

// LoadOptions tune Load and Compose.
type LoadOptions struct {
	Set     []Setting // values that replace those of the file
	Lenient bool      // unset variables are warnings; for looking at a file without running it
}

// Load reads a pipeline file of a project. Errors: Findings, all at once; if all of them are warnings the
// pipeline comes with them and is usable. Other errors are *freshet.Error.
func Load(project *Project, file string, opts *LoadOptions) (*Pipeline, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fileError(file, err)
	}
	return Parse(project, display(file), data, opts)
}

// Parse reads the text of a pipeline file; name is its name in messages. Otherwise as Load.
func Parse(project *Project, name string, data []byte, opts *LoadOptions) (*Pipeline, error) {
	root, err := parse(name, data)
	if err != nil {
		return nil, Findings{asFinding(err)}
	}
	p := &Pipeline{File: name, Project: project, origins: &origins{}}
	return p, p.take(root, opts)
}

// Compose makes a pipeline of settings alone. Otherwise as Load.
func Compose(project *Project, opts *LoadOptions) (*Pipeline, error) {
	p := &Pipeline{Project: project, origins: &origins{}}
	return p, p.take(&node{kind: mapping}, opts)
}

func (p *Pipeline) take(root *node, opts *LoadOptions) error {
	if opts == nil {
		opts = &LoadOptions{}
	}
	r := &reader{lookup: systemLookup(p.Project.Environment, opts.Lenient)}
	for _, s := range opts.Set {
		r.put(root, s)
	}
	r.expand(root, map[*node]bool{})
	if root.kind == absent {
		r.add(root.where, freshet.CodeMissing, "write one, or make one with `freshet init`",
			"the file holds no pipeline")
	} else {
		r.whole = p.shape()
		r.whole.read(r, root)
		p.check(r)
	}
	if found := r.result(); len(found) > 0 {
		return found
	}
	return nil
}

// put places a setting into the tree.
func (r *reader) put(root *node, s Setting) {
	value, err := s.node()
	if err != nil {
		r.take(err)
		return
	}
	at := root
	for i, name := range s.Path {
		next := child(at, name, value.where)
		if next == nil {
			r.add(value.where, freshet.CodeBadValue, "", "%s: there is %s", strings.Join(s.Path[:i], "."), at.kind)
			return
		}
		at = next
	}
	*at = *value
}

// node is the setting's value as a part of a tree.
func (s Setting) node() (*node, error) {
	n := &node{kind: scalar, where: place{src: &source{name: s.Place}}}
	switch v := s.Value.(type) {
	case string:
		n.text = v
	case []string:
		n.kind = list
		for _, item := range v {
			n.items = append(n.items, &node{kind: scalar, text: item, where: n.where})
		}
	case []Setting:
		n.kind = mapping
		for _, m := range v {
			value, err := m.node()
			if err != nil {
				return nil, err
			}
			n.pairs = append(n.pairs, pair{&node{kind: scalar, text: m.Path[0], where: value.where}, value})
		}
	case yamlText:
		parsed, err := parse(s.Place, []byte(v))
		if err != nil {
			return nil, err
		}
		relocate(parsed, n.where)
		return parsed, nil
	}
	return n, nil
}

// relocate gives every node of a tree one place.
func relocate(n *node, at place) {
	n.where, n.moved = at, true
	for _, item := range n.items {
		relocate(item, at)
	}
	for _, p := range n.pairs {
		p.key.where = at
		relocate(p.value, at)
	}
}

// child is the part of a node under a key or number; it is made if it is not there. It is nil when the node
// can have none.
func child(n *node, name string, where place) *node {
	index, err := strconv.Atoi(name)
	isIndex := err == nil && index >= 0
	if n.kind == absent {
		n.kind = mapping
		if isIndex {
			n.kind = list
		}
	}
	switch {
	case n.kind == list && isIndex && index <= len(n.items):
		if index == len(n.items) {
			n.items = append(n.items, &node{where: where})
		}
		return n.items[index]
	case n.kind == mapping:
		if v := n.get(name); v != nil {
			return v
		}
		v := &node{where: where}
		n.pairs = append(n.pairs, pair{&node{kind: scalar, text: name, where: where}, v})
		return v
	}
	return nil
}

// Files returns the pipeline files that the arguments name: files as they are, and of folders all *.yaml and
// *.yml files at and below, without project files and hidden folders, in the order of their names. Errors:
// *freshet.Error.
func Files(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fileError(arg, err)
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		found, err := filesBelow(pipelineFolder(arg))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: display(arg),
				Msg: "there is no pipeline file (*.yaml) in this folder", Fix: "make one with `freshet init`"}
		}
		files = append(files, found...)
	}
	return files, nil
}

// pipelineFolder is where the pipeline files of a folder are: in a project they are in pipelines/, if it has
// that.
func pipelineFolder(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, ProjectFile)); err != nil {
		return dir
	}
	sub := filepath.Join(dir, "pipelines")
	if info, err := os.Stat(sub); err == nil && info.IsDir() {
		return sub
	}
	return dir
}

func filesBelow(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != dir && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(name)
		if (ext == ".yaml" || ext == ".yml") && name != ProjectFile && !strings.HasPrefix(name, ".") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			return nil, fileError(p.Path, err)
		}
		return nil, err
	}
	slices.Sort(files)
	return files, nil
}
