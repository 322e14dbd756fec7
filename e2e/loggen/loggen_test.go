package loggen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
)

// TestSession: what is generated is valid, the same each time, and maps to whole streams with nested subagents.
func TestSession(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := Options{ID: "10c6e700-0000-4000-8000-00000000000" + fmt.Sprint(seed), Seed: seed, Turns: 30}
			all := Session(o)
			if !reflect.DeepEqual(all, Session(o)) {
				t.Fatal("two runs differ")
			}
			for _, w := range all {
				for line := range bytes.Lines(w.Data) {
					if !json.Valid(line) {
						t.Fatalf("not JSON: %s", line)
					}
				}
			}
			home := t.TempDir()
			if err := (Writer{Dir: home + "/projects"}).Run(context.Background(), all); err != nil {
				t.Fatal(err)
			}
			var envs []protocol.Envelope
			_, err := bridge.MapHome(claude.Provider{}, home, adapters.SessionOptions{}, time.Now().UnixMilli(), func(_ string, e protocol.Envelope) error {
				envs = append(envs, e)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range append(streamcheck.Check(envs), streamcheck.Open(envs)...) {
				t.Error(problem)
			}
			kinds := map[protocol.Type]int{}
			for _, e := range envs {
				kinds[e.Ev.T]++
			}
			if kinds[protocol.TypeTurnStart] != o.Turns || kinds[protocol.TypeStart] < 10 {
				t.Errorf("an odd mix: %v", kinds)
			}
		})
	}
}
