package spec_test

import (
	"testing"

	"github.com/freshet-io/freshet/spec"
)

func TestPipeline_GatheredBytes_OfWhatWaitsInMemory(t *testing.T) {
	topic := "{kafka: {brokers: [\"b:9092\"], topics: [orders]}}"
	database := "{postgres: {url: \"postgres://h/d\", tables: [public.orders]}}"
	for name, c := range map[string]struct {
		source, target string
		want           int64
	}{
		"rows that are written as they come": {topic, "{path: ./t}", 0},
		"a size of files":                    {topic, "{path: ./t, commit: {max_size: 1GiB}}", 0},
		"a topic's, by key":                  {topic, "{path: ./t, mode: mirror, key: [id]}", 96 << 20},
		"a topic's, by key, of a size":       {topic, "{path: ./t, mode: upsert, key: [id], commit: {max_size: 8MiB}}", 8 << 20},
		"a topic's, none twice":              {topic, "{path: ./t, dedupe: {key: [id], time: at, within: 1h}}", 96 << 20},
		"a database's":                       {database, "{path: \"./{table}\", mode: mirror}", 24 << 20},
		"a database's, of a size":            {database, "{path: \"./{table}\", mode: mirror, commit: {max_size: 1GiB}}", 1 << 30},
	} {
		project, err := spec.OpenProject("", "", true)
		if err != nil {
			t.Fatal(err)
		}
		p, err := spec.Parse(project, "p.yaml", []byte("pipeline: p\nsource: "+c.source+"\ntarget: {delta: "+c.target+"}\n"), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := p.GatheredBytes(); got != c.want {
			t.Errorf("%s: got %d bytes, want %d", name, got, c.want)
		}
	}
}
