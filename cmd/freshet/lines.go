package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/format"
)

const (
	lineBytes   = 64 << 20 // the longest line
	sampledRows = 10_000   // lines that are looked at at once for the types of fields that the table lacks
	sampleBytes = 64 << 20 // and the bytes of these lines
	batchRows   = 16_384
)

// lineSource is the JSON objects of a file, one a line, or of standard input, as rows. Columns of known give their
// types to fields of their name; of the others the type is that of the first lines that have them. done ends its use.
func (c *cli) lineSource(ctx context.Context, name string, known *arrow.Schema) (delta.RowSource, func(), error) {
	l := &lines{name: name, open: func() (io.ReadCloser, error) { return os.Open(name) }}
	done := func() {}
	if name == "-" {
		f, err := spool(c.in)
		if err != nil {
			return delta.RowSource{}, nil, err
		}
		l.name, done = "standard input", func() { closeSpool(f) }
		l.open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, math.MaxInt64)), nil }
	}
	schema, err := l.infer(ctx, known)
	if err != nil {
		done()
		return delta.RowSource{}, nil, err
	}
	return delta.RowSource{Schema: schema, Rows: func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return l.rows(ctx, schema)
	}}, done, nil
}

// spool keeps a stream in a file, so that it can be read more than once. The file has no name, and so ends with the process,
// where the system lets it be deleted while it is open.
func spool(in io.Reader) (*os.File, error) {
	f, err := os.CreateTemp("", "freshet-*.jsonl")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name()) // where this is refused, closeSpool tries again
	if _, err := io.Copy(f, in); err != nil {
		closeSpool(f)
		return nil, fmt.Errorf("keep standard input in %s: %w", filepath.Dir(f.Name()), err)
	}
	return f, nil
}

func closeSpool(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// lines is a file of JSON objects, one a line.
type lines struct {
	name string // for people
	open func() (io.ReadCloser, error)
}

// each visits the lines that are not empty, numbered from 1, until visit fails. A line is valid during the visit.
func (l *lines) each(ctx context.Context, visit func(n int, line []byte) error) error {
	f, err := l.open()
	if err != nil {
		return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: "--source", Msg: err.Error(),
			Fix: "name a table, a file of JSON lines, or -"}
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(make([]byte, 0, 1<<20), lineBytes)
	n := 0
	for s.Scan() {
		n++
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 {
			if err := visit(n, line); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", l.name, n+1, err)
	}
	return nil
}

// infer is the schema of the rows: the fields that there are, with the types of known where it has the name.
func (l *lines) infer(ctx context.Context, known *arrow.Schema) (*arrow.Schema, error) {
	f, err := format.NewJSON(nil)
	if err != nil {
		return nil, err
	}
	types, seen := known, map[string]bool{}
	var sample []freshet.Payload
	held := 0
	look := func() error {
		types, err = f.Infer(sample, types)
		sample, held = nil, 0
		return err
	}
	err = l.each(ctx, func(n int, line []byte) error {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line, &object); err != nil {
			return l.fault(n, freshet.CodeMalformed, "found no JSON object: "+err.Error())
		}
		for name := range object {
			seen[strings.ToLower(name)] = true
		}
		sample, held = append(sample, freshet.Payload{Value: bytes.Clone(line)}), held+len(line)
		if len(sample) < sampledRows && held < sampleBytes {
			return nil
		}
		return look()
	})
	if err == nil && len(sample) > 0 {
		err = look()
	}
	if err != nil {
		return nil, err
	}
	var fields []arrow.Field
	for _, field := range types.Fields() {
		if seen[strings.ToLower(field.Name)] {
			field.Nullable = true
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		return nil, &freshet.Error{Code: freshet.CodeMalformed, Class: freshet.ClassInput, Place: l.name,
			Msg: "found no row with a field", Fix: `rows are JSON objects, one a line: {"id": 1}`}
	}
	return arrow.NewSchema(fields, nil), nil
}

func (l *lines) fault(n int, code freshet.Code, msg string) error {
	return &freshet.Error{Code: code, Class: freshet.ClassInput, Place: fmt.Sprintf("%s:%d", l.name, n), Msg: msg}
}

// rows decodes the lines.
func (l *lines) rows(ctx context.Context, schema *arrow.Schema) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		stop := errors.New("nobody wants more")
		err := l.decode(ctx, schema, func(b arrow.RecordBatch) error {
			if !yield(b, nil) {
				return stop
			}
			return nil
		})
		if err != nil && !errors.Is(err, stop) {
			yield(nil, err)
		}
	}
}

func (l *lines) decode(ctx context.Context, schema *arrow.Schema, take func(arrow.RecordBatch) error) error {
	f, err := format.NewJSON(&format.Options{NewFields: format.Fail})
	if err != nil {
		return err
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		return err
	}
	defer d.Release()
	err = l.each(ctx, func(n int, line []byte) error {
		_, err := d.Append(freshet.Payload{Value: line})
		if errors.Is(err, freshet.ErrFull) {
			if err := take(d.Flush().Rows); err != nil {
				return err
			}
			_, err = d.Append(freshet.Payload{Value: line})
		}
		var reject *freshet.RejectError
		if errors.As(err, &reject) {
			return l.fault(n, reject.Code, reject.Error())
		}
		if err == nil && d.Len() >= batchRows {
			err = take(d.Flush().Rows)
		}
		return err
	})
	if err != nil || d.Len() == 0 {
		return err
	}
	return take(d.Flush().Rows)
}
