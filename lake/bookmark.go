package lake

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/freshet-io/freshet/store"
)

// Bookmarks say what a seq stands for where that is more than a number. They are objects in the folder of the table
//
//	_freshet/marks-<app>/<name>
//
// each put if absent, so that of several processes each goes by what another was first with.
func (t *table) bookmarks() string { return bookmarksOf(t.a.app) }

func bookmarksOf(app string) string { return "_freshet/marks-" + url.PathEscape(app) + "/" }

// carryBookmarks has a table keep what another one does, but for bookmarks of histories: it holds these whole.
func carryBookmarks(ctx context.Context, from, to store.Store, app string) error {
	folder := bookmarksOf(app)
	for o, err := range from.List(ctx, folder, "") {
		if err != nil {
			return err
		}
		if strings.HasPrefix(o.Key, folder+"history/") {
			continue
		}
		mark, err := from.Get(ctx, o.Key)
		if err != nil {
			return err
		}
		if err := to.Put(ctx, o.Key, mark); err != nil {
			return err
		}
	}
	return nil
}

// Bookmark keeps mark under the name, unless one is kept already, and returns the one that is.
func (a *Target) Bookmark(ctx context.Context, table, name string, mark []byte) ([]byte, error) {
	t, err := a.table(table)
	if err != nil {
		return nil, err
	}
	key := t.bookmarks() + name
	for range maxRaces {
		kept, err := t.st.Get(ctx, key)
		switch {
		case err == nil:
			return kept, nil
		case !errors.Is(err, store.ErrNotFound):
			return nil, explain(table, err)
		case mark == nil:
			return nil, nil
		}
		err = t.st.PutIfAbsent(ctx, key, mark)
		switch {
		case err == nil:
			return mark, nil
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrAmbiguous):
			return nil, explain(table, err)
		}
	}
	return nil, t.tooManyRaces()
}

// Unmark deletes the bookmarks whose names begin with prefix and are not greater than last.
func (a *Target) Unmark(ctx context.Context, table, prefix, last string) error {
	t, err := a.table(table)
	if err != nil {
		return err
	}
	for o, err := range t.st.List(ctx, t.bookmarks()+prefix, "") {
		if err != nil {
			return explain(table, err)
		}
		if o.Key > t.bookmarks()+last {
			break
		}
		if err := t.st.Delete(ctx, o.Key); err != nil {
			return explain(table, err)
		}
	}
	return nil
}
