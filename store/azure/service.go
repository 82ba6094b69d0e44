package azure

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

const (
	apiVersion = "2021-12-02"
	scope      = "https://storage.azure.com/.default"
	blobExists = "BlobAlreadyExists"
)

// service signs requests and judges answers: see rest.Service.
type service struct {
	account   string
	container string
	key       []byte     // nil without an account key
	sas       url.Values // nil without a shared access signature

	turn    chan struct{} // one token: who holds it may use the fields below
	tokens  azcore.TokenCredential
	hadSome bool // a token was got at least once
}

func newService(o *Options, container string) (*service, error) {
	account, _, _ := strings.Cut(o.Account, ".")
	s := &service{account: account, container: container, turn: make(chan struct{}, 1)}
	var err error
	switch {
	case o.Key != "":
		s.key, err = base64.StdEncoding.DecodeString(o.Key)
	case o.SAS != "":
		s.sas, err = url.ParseQuery(strings.TrimPrefix(o.SAS, "?"))
		if err != nil { // whose text would show the secret
			err = errors.New("the shared access signature is no query of a URL")
		}
	}
	return s, err
}

// Sign proves who asks by the account's key, the shared access signature or a token of Azure's default credentials.
func (s *service) Sign(ctx context.Context, r *http.Request) error {
	r.Header.Set("X-Ms-Version", apiVersion)
	r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
	switch {
	case s.key != nil:
		mac := hmac.New(sha256.New, s.key)
		mac.Write([]byte(s.toSign(r)))
		r.Header.Set("Authorization", "SharedKey "+s.account+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		return nil
	case s.sas != nil:
		query := r.URL.Query()
		for name, values := range s.sas {
			query[name] = values
		}
		r.URL.RawQuery = query.Encode()
		return nil
	}
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// token asks for a token, which azidentity keeps until it expires. Without any credentials it is ErrPermission;
// once there were some, a failure is an outage of the service that renews them.
func (s *service) token(ctx context.Context) (string, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	defer func() { <-s.turn }()
	var err error
	if s.tokens == nil {
		s.tokens, err = azidentity.NewDefaultAzureCredential(nil)
	}
	var token azcore.AccessToken
	if err == nil {
		token, err = s.tokens.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	}
	switch {
	case err == nil:
		s.hadSome = true
		return token.Token, nil
	case s.hadSome || ctx.Err() != nil:
		return "", fmt.Errorf("%w: no token for the credentials: %w", store.ErrUnavailable, err)
	}
	return "", fmt.Errorf("%w: no credentials found; set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, set "+
		"AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run az login: %w", store.ErrPermission, err)
}

// toSign is what the account's key signs: Azure, "Authorize with Shared Key".
func (s *service) toSign(r *http.Request) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	lines := []string{r.Method}
	for _, name := range []string{"Content-Encoding", "Content-Language", "", "Content-Md5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		if name == "" {
			lines = append(lines, length)
		} else {
			lines = append(lines, r.Header.Get(name))
		}
	}
	var own []string
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			own = append(own, lower+":"+r.Header.Get(name))
		}
	}
	slices.Sort(own)
	lines = append(lines, own...)
	lines = append(lines, "/"+s.account+r.URL.EscapedPath())
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := slices.Sorted(slices.Values(query[name]))
		lines = append(lines, strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	return strings.Join(lines, "\n")
}

// Judge reads Azure's errors: a status, and a code in a header or the body.
func (s *service) Judge(call *rest.Call, a *rest.Answer) error {
	is := rest.Refused(a)
	switch code(a) {
	case "ContainerNotFound":
		return fmt.Errorf("container %q of the account %s %w; create it first", s.container, s.account, store.ErrNoBucket)
	case "ServerBusy", "OperationTimedOut":
		return nil
	}
	switch a.Status {
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Errorf("%w (%s: check the key, the signature's expiry and the clock, or give the identity the role "+
			"Storage Blob Data Contributor; a firewall of the account answers so, too)", is, code(a))
	case http.StatusConflict:
		return fmt.Errorf("the server refuses: %s", code(a))
	case http.StatusNotFound:
		if call.Method == http.MethodPut {
			return fmt.Errorf("container %q of the account %s %w; create it first", s.container, s.account, store.ErrNoBucket)
		}
	}
	return is
}

// code is the code of an error; "" for none.
func code(a *rest.Answer) string {
	if c := a.Header.Get("X-Ms-Error-Code"); c != "" {
		return c
	}
	var said struct {
		Code string `xml:"Code"`
	}
	if xml.Unmarshal(a.Body, &said) != nil {
		return ""
	}
	return said.Code
}
