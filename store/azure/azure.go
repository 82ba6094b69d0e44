// Package azure is a store.Store in a container of Azure Blob Storage, with or without a hierarchical namespace.
//
// Guarantees, besides those of store.Store:
//   - PutIfAbsent is one Put Blob with If-None-Match: *. It is sent again only when it is certain that nothing was
//     stored: no connection was made, or the server said that it refused.
//   - Memory is at most one block of 8 MiB for each upload, whatever its size.
//
// Keys that hold a backslash are errors, since Azure takes it for a slash; so is writing one of which a part ends
// with a dot, which Azure asks not to do and Spark's driver for it refuses.
//
// Non-goals: creating containers, encryption settings, versions of blobs, page and append blobs.
//
// Processes that die during an upload leave blocks behind, which show nowhere and which Azure drops after a week.
//
//	lake, err := azure.Open("container", "lake/orders", &azure.Options{Account: "acme"})
package azure

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

const (
	answerTimeout   = time.Minute
	defaultAttempts = 5
	publicCloud     = "core.windows.net"
)

// Options say how to reach the server. Without a key and a SAS, the credentials are Azure's default ones: those of
// the variables AZURE_TENANT_ID, AZURE_CLIENT_ID and their like, of the workload or the machine, or of the az
// command line.
type Options struct {
	// Account is the storage account: its name, or its host as abfss:// URIs have it, "acme.dfs.core.windows.net",
	// which also says the cloud. Default: AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_ACCOUNT_NAME.
	Account string
	// Key is the account's key, in base64; default: AZURE_STORAGE_KEY or AZURE_STORAGE_ACCOUNT_KEY.
	Key string
	// SAS is a shared access signature, the query of a URL; default: AZURE_STORAGE_SAS_TOKEN.
	SAS string
	// Endpoint is the URL of the account at an emulator or another cloud: "http://127.0.0.1:10000/account".
	// Default: AZURE_BLOB_ENDPOINT, else that of the account, https://acme.blob.core.windows.net.
	Endpoint string
	Timeout  time.Duration // how long an answer may take to begin; default one minute
	Attempts int           // how often a request is sent at most, the first included; default 5
}

// Validate reports all that is wrong with the options.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var faults []error
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			faults = append(faults, fmt.Errorf("azure endpoint %q is not a URL like https://host/account", o.Endpoint))
		}
	}
	account, cloud, isHost := strings.Cut(o.Account, ".dfs.")
	if strings.Trim(account, "abcdefghijklmnopqrstuvwxyz0123456789") != "" ||
		isHost && (account == "" || !isCloud.MatchString(cloud)) {
		faults = append(faults, fmt.Errorf("azure account %q is neither small letters and digits nor a host like "+
			"acme.dfs.core.windows.net", o.Account))
	}
	if _, err := base64.StdEncoding.DecodeString(o.Key); err != nil {
		faults = append(faults, errors.New("azure key is not base64"))
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("azure timeout %v is negative", o.Timeout))
	}
	if o.Attempts < 0 {
		faults = append(faults, fmt.Errorf("azure attempts %d is negative", o.Attempts))
	}
	return errors.Join(faults...)
}

// isCloud is what follows the account in a host, to be part of a URL.
var isCloud = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+$`)

// Store is the blobs of a container below a prefix. It is safe for concurrent use.
type Store struct {
	client  *rest.Client
	service *service
	base    string // URL of the container, without a slash at the end
	root    string // the container as URL names it
	prefix  string // "" or ending with a slash
}

// Open returns the store of the blobs of a container whose names begin with prefix and a slash; the prefix may be
// empty. Nothing is sent, and default credentials are looked for at the first call. Errors: faults of the options,
// and a missing account.
func Open(container, prefix string, opts *Options) (*Store, error) {
	prefix = strings.Trim(prefix, "/")
	root := "az://" + container
	if opts != nil && strings.Contains(opts.Account, ".") {
		root = "abfss://" + container + "@" + opts.Account
	}
	where := strings.TrimSuffix(root+"/"+prefix, "/")
	if container == "" || strings.ContainsAny(container, "/?#%@") {
		return nil, fmt.Errorf("open azure: %q is not the name of a container", container)
	}
	if prefix != "" {
		if err := checkKey(prefix); err != nil {
			return nil, fmt.Errorf("open %s: %w", where, err)
		}
		prefix += "/"
	}
	given := opts.orDefaults()
	if err := given.Validate(); err != nil {
		return nil, fmt.Errorf("open %s: %w", where, err)
	}
	if given.Account == "" {
		return nil, fmt.Errorf("open %s: no storage account is set: set AZURE_STORAGE_ACCOUNT, or write "+
			"abfss://container@account.dfs.core.windows.net/path", where)
	}
	service, err := newService(&given, container)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", where, err)
	}
	return &Store{client: rest.NewClient(given.Timeout, given.Attempts, service), service: service,
		base: strings.TrimRight(given.Endpoint, "/") + "/" + container, root: root, prefix: prefix}, nil
}

// orDefaults returns a copy with defaults in place of zeros. A key or SAS that is given is not joined by another
// of the environment.
func (o *Options) orDefaults() Options {
	var given Options
	if o != nil {
		given = *o
	}
	if given.Account == "" {
		given.Account = environment("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
	}
	if given.Key == "" && given.SAS == "" {
		given.Key = environment("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
		given.SAS = environment("AZURE_STORAGE_SAS_TOKEN")
	}
	if given.Endpoint == "" {
		given.Endpoint = environment("AZURE_BLOB_ENDPOINT")
	}
	if given.Endpoint == "" {
		account, cloud, isHost := strings.Cut(given.Account, ".dfs.")
		if !isHost {
			cloud = publicCloud
		}
		given.Endpoint = "https://" + account + ".blob." + cloud
	}
	if given.Timeout == 0 {
		given.Timeout = answerTimeout
	}
	if given.Attempts == 0 {
		given.Attempts = defaultAttempts
	}
	return given
}

// environment is the first of the variables that is set.
func environment(names ...string) string {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return value
		}
	}
	return ""
}

// URL is "az://container/prefix"; if the account was given as a host,
// "abfss://container@acme.dfs.core.windows.net/prefix".
func (s *Store) URL() string {
	return strings.TrimSuffix(s.root+"/"+s.prefix, "/")
}

// admit is the check that every call on a key begins with.
func admit(ctx context.Context, verb, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return rest.Admit(ctx, verb, key)
}

// admitWrite is the same for calls that make a blob.
func admitWrite(ctx context.Context, verb, key string) error {
	if strings.Contains(key+"/", "./") {
		return fmt.Errorf("object key %q has a part that ends with a dot, which Azure does not keep", key)
	}
	return admit(ctx, verb, key)
}

// checkKey refuses the keys that no store can hold, and those that Azure would take for others.
func checkKey(key string) error {
	if strings.Contains(key, `\`) {
		return fmt.Errorf("object key %q holds a backslash, which Azure takes for a slash", key)
	}
	return store.CheckKey(key)
}

// url is the address of a blob.
func (s *Store) url(key string) string {
	parts := strings.Split(s.prefix+key, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return s.base + "/" + strings.Join(parts, "/")
}
