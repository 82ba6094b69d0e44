package azure

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

const (
	blockBytes = 8 << 20
	maxBlocks  = 50_000 // Azure takes no more
)

// Create begins a streaming upload. See store.Store. A blob of up to 8 MiB is one put when it is closed; a larger
// one is sent in blocks of 8 MiB while it is written: Write waits for each block.
func (s *Store) Create(ctx context.Context, key string) (store.Upload, error) {
	if err := admitWrite(ctx, "create", key); err != nil {
		return nil, err
	}
	return rest.NewUpload(ctx, key, blockBytes, &upload{ctx: ctx, store: s, key: key, id: uuid.NewString()}), nil
}

// upload is the rest.Sender of one blob.
type upload struct {
	ctx    context.Context
	store  *Store
	key    string
	id     string // begins the names of the blocks, so that uploads of one key do not share any
	blocks []string
}

// Whole puts the blob.
func (u *upload) Whole(data []byte) error {
	_, err := u.store.client.Do(u.ctx, u.store.write("upload", u.key, data))
	return err
}

// Part sends a block, of which nothing shows until the last one is there, and gives the bytes back.
func (u *upload) Part(data []byte, last bool) ([]byte, error) {
	if len(u.blocks) == maxBlocks {
		return nil, fmt.Errorf("upload %s: larger than the %d bytes that fit into %d blocks; write smaller objects",
			u.key, maxBlocks*blockBytes, maxBlocks)
	}
	block := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%05d", u.id, len(u.blocks)))
	_, err := u.store.client.Do(u.ctx, &rest.Call{Verb: "upload", Key: u.key, Method: http.MethodPut, Body: data,
		URL: u.store.url(u.key) + "?comp=block&blockid=" + url.QueryEscape(block)})
	if err != nil {
		return nil, err
	}
	u.blocks = append(u.blocks, block)
	if last {
		err = u.commit()
	}
	return data, err
}

// commit makes the blob of the blocks. An attempt after one that was carried out may be refused, because its
// blocks are no longer uncommitted ones; what the blob says of its upload tells that it landed.
func (u *upload) commit() error {
	var list strings.Builder
	list.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	for _, block := range u.blocks {
		list.WriteString("<Latest>" + block + "</Latest>")
	}
	list.WriteString("</BlockList>")
	_, err := u.store.client.Do(u.ctx, &rest.Call{Verb: "upload", Key: u.key, Method: http.MethodPut, Writes: true,
		URL: u.store.url(u.key) + "?comp=blocklist", Body: []byte(list.String()),
		Header: map[string]string{"Content-Type": "application/xml", uploadHeader: u.id,
			"X-Ms-Blob-Content-Type": "application/octet-stream"}})
	if errors.Is(err, store.ErrAmbiguous) && u.landed() {
		return nil
	}
	return err
}

// uploadHeader is the metadata by which an upload recognises the blob it made.
const uploadHeader = "X-Ms-Meta-Freshetupload"

func (u *upload) landed() bool {
	a, err := u.store.client.Do(u.ctx, &rest.Call{Verb: "stat", Key: u.key, Method: http.MethodHead,
		URL: u.store.url(u.key)})
	return err == nil && a.Header.Get(uploadHeader) == u.id
}

// Drop leaves the blocks to Azure, which has no call to drop them.
func (u *upload) Drop() error { return nil }
