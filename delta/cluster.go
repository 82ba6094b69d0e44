package delta

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// The domain that holds the columns of a clustered table, and what files say that were laid out by them. Spec:
// "Clustered Table". Tags are Spark's: a cube is what one rewrite has laid out.
const (
	clusteringDomain   = "delta.clustering"
	clusteringProvider = "liquid"
	tagCube            = "ZCUBE_ID"
	tagCubeColumns     = "ZCUBE_ZORDER_BY"
	tagCubeCurve       = "ZCUBE_ZORDER_CURVE"

	// wholeCubeBytes is the size from which a cube is left as it is: Spark's minimum of a cube.
	wholeCubeBytes = 100 << 30
)

// layout is an order of rows in space: rows that are close in the values of some columns come into the same files.
type layout struct {
	paths    [][]string // of the columns
	names    []string   // of the columns, as people write them
	curve    string     // "hilbert" or "zorder"
	provider string     // Add.ClusteringProvider; "" for a z-order, which the table itself does not ask for
	full     bool       // also what lies well already
}

// layout is what the options or the table ask for; nil: none.
func (s *Snapshot) layout(opts *OptimizeOptions) (*layout, error) {
	clustered, err := s.clusteringColumns()
	switch {
	case err != nil:
		return nil, err
	case clustered != nil && opts.ZOrderBy != nil:
		return nil, fmt.Errorf("the table is clustered by %s, it cannot be z-ordered by other columns", joinPaths(clustered))
	case clustered != nil && opts.Where != nil:
		return nil, fmt.Errorf("the table is clustered by %s: it has no partitions for a condition to choose from",
			joinPaths(clustered))
	case clustered != nil:
		return newLayout(clustered, "hilbert", clusteringProvider, opts.Full), nil
	case opts.Full:
		return nil, fmt.Errorf("full is for clustered tables, and this one has no clustering columns")
	case opts.ZOrderBy == nil:
		return nil, nil
	}
	var paths [][]string
	for _, name := range opts.ZOrderBy {
		path, err := s.orderable(name)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return newLayout(paths, "zorder", "", false), nil
}

func newLayout(paths [][]string, curve, provider string, full bool) *layout {
	l := &layout{paths: paths, curve: curve, provider: provider, full: full}
	for _, p := range paths {
		l.names = append(l.names, strings.Join(p, "."))
	}
	return l
}

// orderable finds a column, or a field of a struct written as a.b, that rows can be laid out by. A part of the name that
// has a dot stands between backticks.
func (s *Snapshot) orderable(name string) ([]string, error) {
	fields, path := s.Schema().Fields, []string(nil)
	for _, part := range splitPath(name) {
		f, _ := lookupField(fields, part)
		if f == nil {
			return nil, fmt.Errorf("z-order by %q: the table has no such column; its columns are %s", name,
				columnList(s.Schema()))
		}
		path, fields = append(path, f.Name), nil
		if st, ok := f.Type.(*Struct); ok {
			fields = st.Fields
		}
	}
	if slices.ContainsFunc(s.PartitionColumns(), func(c string) bool { return strings.EqualFold(c, path[0]) }) {
		return nil, fmt.Errorf("z-order by %q: it is a partition column, all rows of a partition have the same value", name)
	}
	return path, nil
}

// ClusteringColumns are the paths of the columns that the table is clustered by, each as ClusterBy takes it; nil when it
// is not clustered. Errors: ErrCorrupt. Spec: "Clustered Table".
func (s *Snapshot) ClusteringColumns() ([]string, error) {
	paths, err := s.clusteringColumns()
	var columns []string
	for _, p := range paths {
		columns = append(columns, joinPath(p))
	}
	return columns, err
}

// clusteringColumns are the paths of the columns that the table is clustered by, by their names in the schema; nil
// when it is not clustered. The domain has their physical names.
func (s *Snapshot) clusteringColumns() ([][]string, error) {
	d, ok := s.state.domains[clusteringDomain]
	if !ok {
		return nil, nil
	}
	var config struct {
		Columns [][]string `json:"clusteringColumns"`
	}
	if err := json.Unmarshal([]byte(d.Configuration), &config); err != nil {
		return nil, corrupt("the domain %s: %v", clusteringDomain, err)
	}
	m := mappingOf(s.Metadata().Configuration)
	var paths [][]string
	for _, physical := range config.Columns {
		fields, path := s.Schema().Fields, []string(nil)
		for _, part := range physical {
			i := slices.IndexFunc(fields, func(f Field) bool { return m.physicalName(&f) == part })
			if i < 0 {
				return nil, corrupt("the domain %s names the column %q, which the table does not have", clusteringDomain,
					strings.Join(physical, "."))
			}
			path = append(path, fields[i].Name)
			if st, ok := fields[i].Type.(*Struct); ok {
				fields = st.Fields
			} else {
				fields = nil
			}
		}
		if len(path) > 0 {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// cube is what one rewrite has laid out.
type cube struct {
	files []candidate
	bytes int64
	worn  bool
}

// jobs chooses the files of a partition that are laid out together. Files that no cube holds are; so are cubes that
// are no larger than what comes to them, so that a row is rewritten as often as the table doubles, and not with every
// call. Whole cubes stay. A z-order takes all, unless all of it is one cube already.
func (l *layout) jobs(files []candidate, opts *OptimizeOptions) []*job {
	loose, cubes := l.cubes(files, opts.MaxDeleted)
	take := loose.files
	bytes := loose.bytes
	whole := l.full || l.provider == "" && (len(loose.files) > 0 || len(cubes) > 1 || len(cubes) == 1 && cubes[0].worn)
	for _, c := range cubes {
		if whole || c.bytes < wholeCubeBytes && (c.worn || bytes > 0 && c.bytes <= 2*bytes) {
			take = append(take, c.files...)
			bytes += c.bytes
		}
	}
	return l.split(take)
}

// cubes tells apart the files that no cube of these columns holds and the cubes, the smallest first.
func (l *layout) cubes(files []candidate, worn float64) (loose cube, cubes []*cube) {
	byID := map[string]*cube{}
	for i := range files {
		c := &loose
		if id := l.cubeOf(&files[i].add); id != "" {
			if byID[id] == nil {
				byID[id] = &cube{}
				cubes = append(cubes, byID[id])
			}
			c = byID[id]
		}
		c.files = append(c.files, files[i])
		c.bytes += files[i].live
		c.worn = c.worn || files[i].worn(worn)
	}
	slices.SortStableFunc(cubes, func(a, b *cube) int { return cmp.Compare(a.bytes, b.bytes) })
	return loose, cubes
}

// cubeOf is the id of the cube that the file belongs to, "" when it is none of this layout's.
func (l *layout) cubeOf(a *Add) string {
	tag := func(name string) string {
		if v := a.Tags[name]; v != nil {
			return *v
		}
		return ""
	}
	if a.ClusteringProvider != l.provider || tag(tagCubeColumns) != jsonList(l.names) || tag(tagCubeCurve) != l.curve {
		return ""
	}
	return tag(tagCube)
}

// split makes jobs no larger than a whole cube.
func (l *layout) split(files []candidate) (jobs []*job) {
	var j *job
	for i := range files {
		if j == nil || j.live+files[i].live > wholeCubeBytes {
			j = &job{}
			jobs = append(jobs, j)
		}
		j.take(&files[i])
	}
	return jobs
}

// mark tags the files of a new cube.
func (l *layout) mark(adds []Add) {
	id, columns, curve := uuid.NewString(), jsonList(l.names), l.curve
	for i := range adds {
		adds[i].ClusteringProvider = l.provider
		adds[i].Tags = map[string]*string{tagCube: &id, tagCubeColumns: &columns, tagCubeCurve: &curve}
	}
}

// describe adds what Spark's OPTIMIZE says of the layout.
func (l *layout) describe(params map[string]string) {
	if l.provider == "" {
		params["zOrderBy"] = jsonList(l.names)
	} else {
		params["clusterBy"] = jsonList(l.names)
	}
}

// bits is how many bits each column has on the curve.
func (l *layout) bits() int { return min(max(64/len(l.paths), 1), 12) }

// place is the place of each row on the curve.
func (l *layout) place(point []uint32) uint64 {
	if l.curve == "hilbert" {
		return hilbert(point, l.bits())
	}
	return zorder(point, l.bits())
}
