package s3

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/store/internal/rest"
)

// schemes are those by which writers name tables on S3.
var schemes = []string{"s3a", "s3", "s3n"}

// dynamoName is what DynamoDB takes for a table's name.
var dynamoName = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)

var regionName = regexp.MustCompile(`^[a-z0-9-]+$`)

// logStoreURL is Options.LogStore, taken apart.
type logStoreURL struct {
	table    string
	region   string // "" for the store's
	scheme   string
	endpoint string // "" for Amazon's
}

// parseLogStore reads "dynamodb://TABLE?region=R&scheme=s3a&endpoint=URL". Errors: all faults.
func parseLogStore(s string) (*logStoreURL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "dynamodb" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return nil, fmt.Errorf("s3 log store %q is not a URL like dynamodb://delta_log?region=eu-central-1", s)
	}
	parsed := &logStoreURL{table: u.Host, scheme: schemes[0], endpoint: os.Getenv("AWS_ENDPOINT_URL_DYNAMODB")}
	var faults []error
	if !dynamoName.MatchString(u.Host) {
		faults = append(faults, fmt.Errorf("s3 log store %q: %q is not the name of a DynamoDB table", s, u.Host))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		faults = append(faults, fmt.Errorf("s3 log store %q: %w", s, err))
	}
	for name, values := range query {
		value := values[len(values)-1]
		switch {
		case name == "region" && regionName.MatchString(value):
			parsed.region = value
		case name == "scheme" && slices.Contains(schemes, value):
			parsed.scheme = value
		case name == "endpoint" && isEndpoint(value):
			parsed.endpoint = value
		case name == "region" || name == "scheme" || name == "endpoint":
			faults = append(faults, fmt.Errorf("s3 log store %q: %s cannot be %q", s, name, value))
		default:
			faults = append(faults, fmt.Errorf("s3 log store %q has %q, wanted region, scheme (%s) or endpoint", s, name,
				strings.Join(schemes, ", ")))
		}
	}
	return parsed, errors.Join(faults...)
}

func isEndpoint(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// newLogStore is the log store of a store whose other fields are set.
func newLogStore(s *Store, opts *Options) (*logStore, error) {
	u, err := parseLogStore(opts.LogStore)
	if err != nil {
		return nil, err
	}
	known := s.client.Options()
	d := &dynamo{name: u.table, region: u.region, credentials: known.Credentials}
	if d.region == "" {
		d.region = known.Region
	}
	switch {
	case u.endpoint != "":
		d.url = strings.TrimRight(u.endpoint, "/") + "/"
	case strings.HasPrefix(d.region, "cn-"):
		d.url = "https://dynamodb." + d.region + ".amazonaws.com.cn/"
	default:
		d.url = "https://dynamodb." + d.region + ".amazonaws.com/"
	}
	d.client = rest.NewClient(opts.Timeout, opts.Attempts, d)
	return &logStore{store: s, table: d, scheme: u.scheme}, nil
}
