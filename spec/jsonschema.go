package spec

import "encoding/json"

// JSONSchema describes pipeline files, or project files, as JSON Schema (draft 2020-12), indented.
func JSONSchema(project bool) []byte {
	s := (&Pipeline{}).shape().schema()
	s["title"] = "Freshet pipeline"
	if project {
		s = (&Project{}).shape().schema()
		s["title"] = "Freshet project"
	}
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil { // it holds nothing that cannot be written
		panic(err)
	}
	return append(data, '\n')
}
