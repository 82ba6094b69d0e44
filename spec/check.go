package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/format"
	"github.com/freshet-io/freshet/transform"
)

var (
	pipelineName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	topicName    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
)

// expression is a SQL expression.
func expression(into *Text) shape { return exprShape{placed(into), into} }

type exprShape struct {
	shape
	into *Text
}

func (e exprShape) read(r *reader, n *node) {
	e.shape.read(r, n)
	if n.open || n.kind != scalar {
		return
	}
	if e.into.Value != "" {
		*e.into.at = *n
	}
}

// check finds what no key by itself can tell, and fills in what follows from the rest.
func (p *Pipeline) check(r *reader) {
	p.defaults()
	p.checkNames(r)
	if p.Source.Kafka != nil {
		p.checkKafka(r)
	}
	if p.Source.Postgres != nil {
		p.checkPostgres(r)
	}
	if p.Target.Delta != nil {
		p.checkTarget(r)
	}
	p.checkOverrides(r)
	p.checkCuts(r)
	p.checkVerification(r)
	p.checkColumns(r)
	p.checkFormat(r)
	p.checkSteps(r)
}

// defaults takes from the project what the file leaves out.
func (p *Pipeline) defaults() {
	d := p.Project.Defaults
	if t := p.Target.Delta; t != nil {
		fallback(&t.Commit.Every, d.Commit.Every)
		fallback(&t.Commit.MaxRows, d.Commit.MaxRows)
		fallback(&t.Commit.MaxSize, d.Commit.MaxSize)
		t.Upkeep.fallBack(&d.Upkeep)
		if p.Namespace == "" && !isPath(t.Table.Value) {
			p.Namespace, _, _ = strings.Cut(t.Table.Value, ".")
		}
	}
	fallback(&p.CutRetention, p.Project.CutRetention)
	fallback(&p.Namespace, "default")
	if p.Quarantine.Table.Value == "" {
		p.Quarantine.Table = d.Quarantine.Table
	}
	fallback(&p.Quarantine.StopAbove, d.Quarantine.StopAbove)
	fallback(&p.App, p.Namespace+"."+p.Name.Value)
	fallback(&p.Trigger, "continuous")
	fallback(&p.Source.Schema.NewFields, string(format.Add))
	if p.Source.Schema.Infer == 0 && len(p.Source.Schema.Columns) == 0 {
		p.Source.Schema.Infer = 10_000
	}
}

func fallback[T comparable](into *T, value T) {
	var zero T
	if *into == zero {
		*into = value
	}
}

func (p *Pipeline) checkNames(r *reader) {
	if n := p.Name.at; n != nil && p.Name.Value != "" && !pipelineName.MatchString(p.Name.Value) {
		r.add(n.where, freshet.CodeBadValue, "", "pipeline: found %s, wanted letters, digits, _, - and .",
			r.found(n))
	}
	if at, ok := p.at["namespace"]; ok && !pipelineName.MatchString(p.Namespace) {
		r.add(at, freshet.CodeBadValue, "", "namespace: found %q, wanted letters, digits, _, - and .", p.Namespace)
	}
	if at, ok := p.at["app"]; ok && strings.Contains(p.App, "#") {
		r.add(at, freshet.CodeBadValue, "", "app: found %q, wanted a name without #", p.App)
	}
}

func (p *Pipeline) checkKafka(r *reader) {
	k := p.Source.Kafka
	k.checkTopics(r)
	k.checkStart(r)
	if k.Connection.Value != "" && len(k.Client.Brokers) == 0 {
		c, names := p.Project.connection(k.Connection.Value)
		switch {
		case c == nil:
			fix := suggest(k.Connection.Value, names)
			if len(names) == 0 {
				fix = "give it in " + ProjectFile + " under connections, or give brokers: [HOST:PORT] here"
			}
			r.add(k.Connection.at.where, freshet.CodeBadValue, fix, "there is no connection %q in the project",
				k.Connection.Value)
		case c.Kafka == nil:
			r.add(k.Connection.at.where, freshet.CodeBadValue, "", "connection %q is no Kafka cluster",
				k.Connection.Value)
		}
	}
	if k.Connection.Value == "" && len(k.Client.Brokers) == 0 && (len(k.Topics) > 0 || k.Pattern.Value != "") {
		at := place{}
		if len(k.Topics) > 0 {
			at = k.Topics[0].at.where
		} else {
			at = k.Pattern.at.where
		}
		r.add(at, freshet.CodeMissing, "add brokers: [HOST:PORT], or connection: NAME",
			"no broker is given for the topics")
	}
	if k.Pattern.Value != "" {
		if _, err := regexp.Compile(k.Pattern.Value); err != nil {
			r.add(k.Pattern.at.where, freshet.CodeBadValue, "the syntax is RE2's: "+
				"https://github.com/google/re2/wiki/Syntax",
				"pattern: found %s, wanted a regular expression (%v)", r.found(k.Pattern.at), err)
		}
	}
}

// checkTopics finds names that no topic has.
func (k *Kafka) checkTopics(r *reader) {
	for _, t := range k.Topics {
		if t.at == nil || t.at.open || t.Value == "" ||
			topicName.MatchString(t.Value) && t.Value != "." && t.Value != ".." {
			continue
		}
		r.add(t.at.where, freshet.CodeBadValue, "a regular expression goes under pattern",
			"topics: found %s, wanted letters, digits, _, - and .", r.found(t.at))
	}
}

// checkStart finds starts of topics that are not read: a name that is mistyped would begin at the start.
func (k *Kafka) checkStart(r *reader) {
	var names []string
	for _, t := range k.Topics {
		if t.at == nil || t.at.open {
			return
		}
		names = append(names, t.Value)
	}
	for _, t := range k.Start.topics {
		if len(names) > 0 && !slices.Contains(names, t.Name) {
			r.add(t.at.where, freshet.CodeBadValue, suggest(t.Name, names),
				"start: found offsets of %q, wanted a topic that is read", t.Name)
		}
	}
}

// takeFault adds an error of another package under a place of the file.
func (r *reader) takeFault(at place, err error) {
	var f *freshet.Error
	switch {
	case err == nil:
	case errors.As(err, &f):
		r.add(at, f.Code, f.Fix, "%s", f.Msg)
	default:
		r.add(at, freshet.CodeBadValue, "", "%v", err)
	}
}

// jsonKeys are the keys that say how to decode, which nothing does to raw bytes.
var jsonKeys = []string{"columns", "infer", "new_fields", "max_columns", "numbers_as_timestamps", "tombstones", "decompress",
	"max_depth", "max_message", "changes"}

// checkFormat finds settings that the format does not take.
func (p *Pipeline) checkFormat(r *reader) {
	k := p.Source.Kafka
	if k == nil {
		return
	}
	for _, name := range jsonKeys {
		at, ok := k.at[name]
		if !ok {
			at, ok = p.Source.Schema.at[name]
		}
		if ok && k.Format == "raw" {
			r.add(at, freshet.CodeBadValue, "leave it out, or use format: json",
				"%s: format raw lands the bytes as they came, in the one column value", name)
		}
	}
	p.checkChanges(r)
	s := p.Source.Schema
	for _, limit := range []struct {
		at place
		o  format.Options
	}{
		{k.at["max_depth"], format.Options{MaxDepth: int(k.MaxDepth)}},
		{k.at["max_message"], format.Options{MaxBytes: int(k.MaxMessage)}},
		{s.at["max_columns"], format.Options{MaxColumns: int(s.MaxColumns)}},
	} {
		if err := limit.o.Validate(); err != nil {
			r.add(limit.at, freshet.CodeBadValue, "", "%v", err)
		}
	}
	if at, ok := s.at["max_columns"]; ok && len(s.Columns) > 0 && s.NewFields != string(format.Add) {
		r.add(at, freshet.CodeBadValue, "leave it out", "max_columns: the columns are given, and new_fields is %s",
			s.NewFields)
	}
}

// checkColumns finds columns that a Delta table cannot have.
func (p *Pipeline) checkColumns(r *reader) {
	s := p.Source.Schema
	seen := map[string]string{}
	raw := p.Source.Kafka != nil && p.Source.Kafka.Format == "raw"
	if raw {
		s.Columns = nil
		seen[format.RawColumn] = format.RawColumn
	}
	for _, c := range s.Columns {
		low := strings.ToLower(c.Name)
		if other, twice := seen[low]; twice {
			r.add(c.at.where, freshet.CodeBadValue, "", "column %q: found %q before, wanted names that differ in "+
				"more than case", c.Name, other)
			continue
		}
		seen[low] = c.Name
		if c.Value.Type == nil {
			continue
		}
		one := arrow.NewSchema([]arrow.Field{c.Value.field(c.Name)}, nil)
		if _, err := delta.SchemaFromArrow(one); err != nil {
			r.add(c.at.where, freshet.CodeBadValue, "", "%v", err)
		}
	}
	if k := p.Source.Kafka; k != nil {
		for _, f := range k.sourceFields() {
			seen[f.Name] = f.Name
		}
		for _, m := range k.Metadata {
			if other, twice := seen[strings.ToLower(m.Value)]; twice {
				r.add(m.at.where, freshet.CodeBadValue, fmt.Sprintf("give it another name: metadata: {%s: NAME}", m.Name),
					"metadata column %q: there is a column %q", m.Value, other)
			}
			seen[strings.ToLower(m.Value)] = m.Value
		}
	}
}

// columnsKnown tells whether the columns of the source are all given, so that steps can be checked against
// them.
func (p *Pipeline) columnsKnown() bool {
	s := p.Source.Schema
	if p.Source.Kafka == nil {
		return false
	}
	return p.Source.Kafka.Format == "raw" || len(s.Columns) > 0
}

// sourceSchema are the decoded columns that the file gives; nil when they are to be inferred.
func (p *Pipeline) sourceSchema() *arrow.Schema {
	if p.Source.Kafka.Format == "raw" || len(p.Source.Schema.Columns) == 0 {
		return nil
	}
	fields, _ := p.decodedFields()
	return arrow.NewSchema(fields, nil)
}

// decodedFields are the columns that the format decodes, as far as the file tells. broken are those whose
// type is at
// fault.
func (p *Pipeline) decodedFields() (fields []arrow.Field, broken []string) {
	if p.Source.Kafka.Format == "raw" {
		return []arrow.Field{{Name: "value", Type: arrow.BinaryTypes.Binary, Nullable: true}}, nil
	}
	for _, c := range p.Source.Schema.Columns {
		if c.Value.Type == nil { // a fault that was found already
			broken = append(broken, c.Name)
			continue
		}
		fields = append(fields, c.Value.field(c.Name))
	}
	if p.Source.Schema.NewFields == string(format.Rescue) {
		fields = append(fields, arrow.Field{Name: format.RescuedColumn, Type: arrow.BinaryTypes.String,
			Nullable: true})
	}
	return append(fields, p.Source.Kafka.sourceFields()...), broken
}

// stepSchema are the columns that come into the first step, as far as the file tells. broken are those whose
// type
// is at fault.
func (p *Pipeline) stepSchema() (schema *arrow.Schema, broken []string) {
	fields, broken := p.decodedFields()
	return arrow.NewSchema(append(fields, p.Source.Kafka.metadataFields()...), nil), broken
}

// metadataFields are the columns that tell where a record came from, in the order in which the source appends
// them.
func (k *Kafka) metadataFields() []arrow.Field {
	var fields []arrow.Field
	for _, name := range metadataFields {
		for _, m := range k.Metadata {
			if m.Name == name {
				fields = append(fields, arrow.Field{Name: m.Value, Type: metadataType(name, k.KeyAs), Nullable: true})
			}
		}
	}
	return fields
}

func metadataType(name, keyAs string) arrow.DataType {
	switch name {
	case "partition", "timestamp_type":
		return arrow.PrimitiveTypes.Int32
	case "offset":
		return arrow.PrimitiveTypes.Int64
	case "timestamp":
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case "key":
		if keyAs != "string" {
			return arrow.BinaryTypes.Binary
		}
	case "headers":
		return freshet.HeadersType()
	}
	return arrow.BinaryTypes.String
}

// walk is the check of the steps, one after another.
type walk struct {
	r      *reader
	schema *arrow.Schema // the columns that come in; nil when they are not known
	broken []string      // columns that would be there but for a fault that was found already
}

// checkSteps checks each expression, against the columns where they are known.
func (p *Pipeline) checkSteps(r *reader) {
	w := walk{r: r}
	if p.columnsKnown() {
		w.schema, w.broken = p.stepSchema()
	}
	p.hideColumns(&w)
	for _, s := range p.Steps {
		for _, part := range s.parts() {
			w.check(part)
		}
		if s.Select != nil && w.schema != nil {
			w.choose(s)
		}
	}
	p.checkPartitions(&w)
	p.checkKeyColumns(&w)
	p.checkFilled(&w)
}

// part is one expression of a step, with the step that consists of nothing else.
type part struct {
	text Text
	name string // of the column that it makes; "" for a condition
	kind string // derive, filter or select
}

func (s Step) parts() []part {
	var parts []part
	for _, d := range s.Derive {
		parts = append(parts, part{d.Value, d.Name, "derive"})
	}
	if s.Filter != nil {
		parts = append(parts, part{*s.Filter, "", "filter"})
	}
	for _, e := range s.Select {
		parts = append(parts, part{e, "", "select"})
	}
	return parts
}

func (p part) step() (freshet.Step, error) {
	if p.kind == "select" {
		c, err := transform.ParseColumn(p.text.Value)
		if err != nil {
			return nil, err
		}
		return transform.NewSelect([]transform.Column{c})
	}
	e, err := expr.Parse(p.text.Value)
	if err != nil {
		return nil, err
	}
	if p.kind == "derive" {
		return transform.NewDerive([]transform.Column{{Name: p.name, Expr: e}}), nil
	}
	return transform.NewFilter(e), nil
}

// check checks one expression, and takes the columns that it makes.
func (w *walk) check(p part) {
	if p.text.at == nil || p.text.Value == "" || p.text.at.open {
		w.broken = append(w.broken, p.name)
		return
	}
	step, err := p.step()
	if err == nil && w.schema != nil {
		var out *arrow.Schema
		if out, err = step.Plan(w.schema); err == nil && p.kind != "select" {
			w.schema = out
		}
	}
	if err == nil {
		return
	}
	if !w.follows(err) {
		w.r.expressionFault(p.text.at, err)
	}
	if p.name != "" {
		w.broken = append(w.broken, p.name)
	}
}

// follows tells whether a fault is only that a column is missing because of another fault.
func (w *walk) follows(err error) bool {
	var e *expr.Error
	if !errors.As(err, &e) || e.Kind != expr.UnknownColumn {
		return false
	}
	return slices.ContainsFunc(w.broken, func(name string) bool {
		return name != "" && strings.Contains(strings.ToLower(e.Text()), strings.ToLower(strconv.Quote(name)))
	})
}

// choose takes the columns that a select leaves; they are not known when one of them is at fault.
func (w *walk) choose(s Step) {
	in := w.schema
	w.schema = nil
	step, err := s.build()
	if err != nil {
		if w.r.ok(s) {
			w.r.add(s.at, freshet.CodeBadValue, "", "%v", err)
		}
		return
	}
	if out, err := step.Plan(in); err == nil {
		w.schema = out
	}
}

// ok tells whether every expression of the step parses.
func (*reader) ok(s Step) bool {
	for _, p := range s.parts() {
		if _, err := p.step(); err != nil {
			return false
		}
	}
	return true
}

// expressionFault adds the fault of an expression at its place within the scalar.
func (r *reader) expressionFault(n *node, err error) {
	var e *expr.Error
	if !errors.As(err, &e) {
		r.takeFault(n.where, err)
		return
	}
	code := map[expr.Kind]freshet.Code{expr.Syntax: freshet.CodeExpression, expr.BadType: freshet.CodeExprType,
		expr.UnknownColumn: freshet.CodeUnknownColumn}[e.Kind]
	fault := *e
	fix := fault.Hint
	fault.Hint = ""
	r.add(n.at(e.Line, e.Col, e.Len), code, fix, "%s", fault.Text())
}
