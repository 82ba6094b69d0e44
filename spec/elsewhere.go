package spec

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// remedy is what to do about a key that a mapping does not have: the nearest of those that it has, else where else in the
// file such a key may stand.
func (r *reader) remedy(name string, names []string) string {
	if len(nearest(name, names)) == 0 && r.whole != nil {
		if found := elsewhere(r.whole.schema(), name, nil); len(found) > 0 {
			return "it is a key of " + join(shallowest(found))
		}
	}
	return suggest(name, names)
}

// shallowest are the paths with the fewest parts, which most people mean.
func shallowest(paths []string) []string {
	depth := func(path string) int { return strings.Count(path, ".") }
	least := slices.MinFunc(paths, func(a, b string) int { return cmp.Compare(depth(a), depth(b)) })
	return slices.DeleteFunc(paths, func(path string) bool { return depth(path) > depth(least) })
}

// elsewhere are the mappings of a JSON Schema that have a key of this name, in the order of their names, as paths such as
// target.delta.
func elsewhere(schema map[string]any, name string, path []string) []string {
	var found []string
	if keys, ok := schema["properties"].(map[string]any); ok {
		if _, has := keys[name]; has && len(path) > 0 {
			found = append(found, strings.Join(path, "."))
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if below, ok := keys[key].(map[string]any); ok {
				found = append(found, elsewhere(below, name, append(slices.Clip(path), key))...)
			}
		}
	}
	for _, part := range []string{"items", "additionalProperties"} {
		if below, ok := schema[part].(map[string]any); ok {
			found = append(found, elsewhere(below, name, path)...)
		}
	}
	ways, _ := schema["anyOf"].([]any)
	for _, way := range ways {
		if below, ok := way.(map[string]any); ok {
			found = append(found, elsewhere(below, name, path)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
