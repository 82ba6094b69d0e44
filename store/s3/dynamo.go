package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

// dynamo is a DynamoDB table of log entries: the three operations of DynamoDB's JSON protocol that the log store
// needs. It is also the rest.Service of its requests.
type dynamo struct {
	client      *rest.Client
	url         string
	region      string
	name        string
	credentials aws.CredentialsProvider
}

// errTaken says that the condition of a put does not hold.
var errTaken = errors.New("there is another entry")

// entry is an item of the table: of one log entry, named by table and file. It is complete once the file is there.
type entry struct {
	table    string // URL of the table, as all its writers name it: the attribute tablePath
	file     string // in the table's log: fileName
	temp     string // key below the log's folder of the object that the file is copied from: tempPath
	complete bool
	expires  time.Time // of a complete one, when DynamoDB may drop it: expireTime
}

// attribute is a value as DynamoDB's JSON has it.
type attribute struct {
	S string `json:"S,omitempty"`
	N string `json:"N,omitempty"`
}

type item map[string]attribute

func (e *entry) item() item {
	it := item{"tablePath": {S: e.table}, "fileName": {S: e.file}, "tempPath": {S: e.temp},
		"complete": {S: strconv.FormatBool(e.complete)}}
	if e.complete {
		it["expireTime"] = attribute{N: strconv.FormatInt(e.expires.Unix(), 10)}
	}
	return it
}

// entry reads an item; nil when there is none. Errors: names that lead out of the log's folder.
func (it item) entry() (*entry, error) {
	if len(it) == 0 {
		return nil, nil
	}
	e := &entry{table: it["tablePath"].S, file: it["fileName"].S, temp: it["tempPath"].S,
		complete: strings.EqualFold(it["complete"].S, "true")}
	for _, name := range []string{e.file, e.temp} {
		if err := store.CheckKey(name); err != nil {
			return nil, fmt.Errorf("the entry of the table %s has a bad name: %w", e.table, err)
		}
	}
	return e, nil
}

// get returns the entry of a file; nil when there is none.
func (d *dynamo) get(ctx context.Context, table, file string) (*entry, error) {
	var out struct{ Item item }
	err := d.do(ctx, "GetItem", file, map[string]any{"TableName": d.name, "ConsistentRead": true,
		"Key": item{"tablePath": {S: table}, "fileName": {S: file}}}, &out)
	if err != nil {
		return nil, err
	}
	return out.Item.entry()
}

// latest returns the entry of the table with the greatest file name; nil when there is none.
func (d *dynamo) latest(ctx context.Context, table string) (*entry, error) {
	var out struct{ Items []item }
	err := d.do(ctx, "Query", table, map[string]any{"TableName": d.name, "ConsistentRead": true, "Limit": 1,
		"ScanIndexForward": false, "KeyConditionExpression": "#table = :table",
		"ExpressionAttributeNames":  map[string]string{"#table": "tablePath"},
		"ExpressionAttributeValues": item{":table": {S: table}}}, &out)
	if err != nil || len(out.Items) == 0 {
		return nil, err
	}
	return out.Items[0].entry()
}

// claim puts the entry unless there is one of its file. Its temp must be new with it: then a repeated put changes
// nothing, and it may be sent until an answer comes. Errors: errTaken, also when a lost attempt had put it and others
// have completed it since.
func (d *dynamo) claim(ctx context.Context, e *entry) error {
	return d.put(ctx, e, "attribute_not_exists(#file) OR #temp = :temp AND #complete = :false",
		map[string]string{"#file": "fileName", "#temp": "tempPath", "#complete": "complete"},
		item{":temp": {S: e.temp}, ":false": {S: "false"}})
}

// acknowledge marks the entry complete, unless there is another of its file by now. Errors: errTaken.
func (d *dynamo) acknowledge(ctx context.Context, e *entry) error {
	done := *e
	done.complete, done.expires = true, time.Now().Add(entryLife)
	return d.put(ctx, &done, "#temp = :temp", map[string]string{"#temp": "tempPath"}, item{":temp": {S: e.temp}})
}

func (d *dynamo) put(ctx context.Context, e *entry, condition string, names map[string]string, values item) error {
	return d.do(ctx, "PutItem", e.file, map[string]any{"TableName": d.name, "Item": e.item(),
		"ConditionExpression": condition, "ExpressionAttributeNames": names, "ExpressionAttributeValues": values}, nil)
}

// do calls an operation. Errors: those of rest.Client.Do, and errTaken.
func (d *dynamo) do(ctx context.Context, operation, key string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	a, err := d.client.Do(ctx, &rest.Call{Verb: operation + " in the DynamoDB table " + d.name + " of", Key: key,
		Method: http.MethodPost, URL: d.url, Body: body, Writes: out == nil, Header: map[string]string{
			"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810." + operation}})
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(a.Body, out); err != nil {
		return fmt.Errorf("%s in the DynamoDB table %s: the server's answer is no JSON: %w", operation, d.name, err)
	}
	return nil
}

// Sign adds Amazon's signature by the credentials that the store has.
func (d *dynamo) Sign(ctx context.Context, r *http.Request) error {
	if d.credentials == nil {
		return fmt.Errorf("%w: no credentials are configured", store.ErrPermission)
	}
	found, err := d.credentials.Retrieve(ctx)
	if err != nil {
		return noCredentials(err)
	}
	body, err := r.GetBody()
	if err != nil {
		return err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, body); err != nil {
		return err
	}
	return v4.NewSigner().SignHTTP(ctx, found, r, hex.EncodeToString(hash.Sum(nil)), "dynamodb", d.region, time.Now())
}

// Judge reads DynamoDB's errors: a status, and in the body a type.
func (d *dynamo) Judge(_ *rest.Call, a *rest.Answer) error {
	var said struct {
		Type string `json:"__type"`
	}
	_ = json.Unmarshal(a.Body, &said) // without a type, the status must do
	is := rest.Refused(a)
	switch said.Type[strings.LastIndexByte(said.Type, '#')+1:] {
	case "ConditionalCheckFailedException":
		return errTaken
	case "ResourceNotFoundException":
		return fmt.Errorf("in the region %s the DynamoDB table %q %w; create it with the keys tablePath (hash) and "+
			"fileName (range), both strings", d.region, d.name, store.ErrNoBucket)
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded",
		"TransactionConflictException", "LimitExceededException", "ResourceInUseException":
		return fmt.Errorf("%w: %s", store.ErrUnavailable, bytes.TrimSpace(a.Body))
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException",
		"MissingAuthenticationTokenException", "MissingAuthenticationToken", "ExpiredTokenException",
		"IncompleteSignatureException":
		return fmt.Errorf("%w (the credentials need dynamodb:GetItem, PutItem and Query on the table %s): %w",
			store.ErrPermission, d.name, is)
	}
	return is
}
