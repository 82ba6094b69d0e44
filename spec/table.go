package spec

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/azure"
	"github.com/freshet-io/freshet/store/gcs"
	"github.com/freshet-io/freshet/store/s3"
)

// tableName is namespace.name; what follows the first dot is the table's folder as it stands.
var tableName = regexp.MustCompile(`^([A-Za-z0-9_-]+)\.([A-Za-z0-9_.-]*[A-Za-z0-9_-])$`)

// isPath tells a path or URI from a table's name.
func isPath(s string) bool {
	return strings.ContainsAny(s, "/\\:") || s == "." || s == ".."
}

// TableURL is where a table is: namespace.name lies below the lake's root, a path or URI is where it says;
// relative ones are so to the project's folder. Errors: *freshet.Error with CodeBadValue.
func (p *Project) TableURL(table string) (string, error) {
	if isPath(table) {
		return p.url(table)
	}
	m := tableName.FindStringSubmatch(table)
	if m == nil {
		return "", &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput,
			Msg: fmt.Sprintf("table: found %q, wanted namespace.table, a path such as ./orders, or a URI such as "+
				"s3://bucket/orders", table),
			Fix: fmt.Sprintf("write bronze.%s for the table %s below the lake's root, or ./%s for the folder", table,
				table, table)}
	}
	root, err := p.url(p.Root.Value)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(root, "/") + "/" + m[1] + "/" + m[2], nil
}

// Path makes a path absolute: relative ones are so to the project's folder; "" stays.
func (p *Project) Path(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(p.Dir, path)
}

// url makes a path or URI absolute.
func (p *Project) url(s string) (string, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case !ok && strings.HasPrefix(s, "file:/"):
		return "file://" + filepath.ToSlash(filepath.Clean(strings.TrimPrefix(s, "file:"))), nil
	case !ok:
		path := s
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.Dir, path)
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		return "file://" + filepath.ToSlash(abs), nil
	}
	switch scheme {
	case "file":
		return "file://" + filepath.ToSlash(filepath.Clean(rest)), nil
	case "s3", "s3a":
		bucket, key, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return "", badURL(s, "a bucket: s3://bucket/folder")
		}
		return "s3://" + bucket + "/" + strings.Trim(key, "/"), nil
	case "gs":
		bucket, key, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return "", badURL(s, "a bucket: gs://bucket/folder")
		}
		return "gs://" + bucket + "/" + strings.Trim(key, "/"), nil
	case "az", "abfs", "abfss":
		container, key, _ := strings.Cut(rest, "/")
		name, host, _ := strings.Cut(container, "@")
		if scheme == "abfs" {
			scheme = "abfss"
		}
		if name == "" || scheme == "az" && host != "" || scheme == "abfss" && !strings.Contains(host, ".") {
			return "", badURL(s, "az://container/folder or abfss://container@account.dfs.core.windows.net/folder")
		}
		return scheme + "://" + container + "/" + strings.Trim(key, "/"), nil
	case "wasbs", "r2", "hdfs":
		return "", &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput,
			Msg: fmt.Sprintf("%s: this version does not have stores of the kind %s://", s, scheme),
			Fix: "it has folders, s3:// for Amazon S3 and every server that speaks its protocol, gs:// for " +
				"Google Cloud Storage, and az:// and abfss:// for Azure Blob Storage"}
	}
	return "", badURL(s, "a path, file://, s3://, gs://, az:// or abfss://")
}

func badURL(s, wanted string) error {
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput,
		Msg: fmt.Sprintf("found %q, wanted %s", s, wanted)}
}

// OpenTable returns the store whose root is the table. Nothing is made and nothing is sent.
func (p *Project) OpenTable(ctx context.Context, table string) (store.Store, error) {
	u, err := p.TableURL(table)
	if err != nil {
		return nil, err
	}
	return openStore(ctx, u, p.LogStore)
}

// OpenStore returns the store at an absolute URL, as TableURL makes them.
func OpenStore(ctx context.Context, rawURL string) (store.Store, error) {
	return openStore(ctx, rawURL, "")
}

func openStore(ctx context.Context, rawURL, logStore string) (store.Store, error) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	switch scheme {
	case "file":
		return openDisk(rest)
	case "s3":
		bucket, prefix, _ := strings.Cut(rest, "/")
		st, err := s3.Open(ctx, bucket, prefix, &s3.Options{LogStore: logStore})
		if err != nil {
			return nil, &freshet.Error{Code: freshet.CodeStoreRefused, Class: freshet.ClassEnvironment, Place: rawURL,
				Msg: "the bucket cannot be used", Err: err,
				Fix: "set AWS_REGION and credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws or a role); " +
					"for another server than Amazon's also AWS_ENDPOINT_URL; FRESHET_LOG_STORE, or log_store of the project, " +
					"is a URL like dynamodb://delta_log?region=eu-central-1"}
		}
		return st, nil
	case "gs":
		bucket, prefix, _ := strings.Cut(rest, "/")
		st, err := gcs.Open(bucket, prefix, nil)
		if err != nil {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: rawURL,
				Msg: "the bucket cannot be used", Err: err,
				Fix: "write gs://bucket/folder, and a URL of an emulator alone into STORAGE_EMULATOR_HOST"}
		}
		return st, nil
	case "az", "abfss":
		return openAzure(rawURL, rest)
	}
	return nil, badURL(rawURL, "file://, s3://, gs://, az:// or abfss://")
}

// openAzure opens container/path, and container@account.dfs.core.windows.net/path.
func openAzure(rawURL, rest string) (store.Store, error) {
	container, prefix, _ := strings.Cut(rest, "/")
	container, host, _ := strings.Cut(container, "@")
	st, err := azure.Open(container, prefix, &azure.Options{Account: host})
	if err != nil {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: rawURL,
			Msg: "the container cannot be used", Err: err,
			Fix: "set AZURE_STORAGE_ACCOUNT, or write abfss://container@account.dfs.core.windows.net/folder"}
	}
	return st, nil
}

func openDisk(path string) (store.Store, error) {
	d, err := store.NewDisk(filepath.FromSlash(path))
	if err == nil {
		return d, nil
	}
	e := &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: display(path),
		Msg: "the folder cannot be used", Err: err}
	if errors.Is(err, store.ErrPermission) {
		e.Code, e.Class, e.Fix = freshet.CodeStoreRefused, freshet.ClassEnvironment, "give this user access to it"
	}
	return nil, e
}
