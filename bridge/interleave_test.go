package bridge_test

import (
	"testing"

	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/internal/pumptest"
)

// TestAnyInterleavingAnyRestartSameStream is the property of the whole mapping, over real transcripts.
func TestAnyInterleavingAnyRestartSameStream(t *testing.T) {
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	for _, home := range corpusHomes(t) {
		pumptest.AnyOrder(t, claude.Provider{}, home, seeds)
	}
}
