package store_test

import (
	"testing"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

func TestMem_Conformance_Holds(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.NewMem() }, nil)
}
