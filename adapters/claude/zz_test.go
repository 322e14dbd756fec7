package claude_test

import (
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/internal/pumptest"
)

func TestZZ(t *testing.T) {
	if os.Getenv("ZZ") == "" {
		t.Skip()
	}
	best := 1 << 30
	var msg string
	for seed := 0; seed < 3000; seed++ {
		ex := rapid.Custom(func(t *rapid.T) string {
			home, _ := os.MkdirTemp("", "zz")
			defer os.RemoveAll(home)
			w := newWorld(t, home)
			files := pumptest.ReadHome(t, claude.Provider{}, home)[w.sid]
			whole := pumptest.Feed(t, claude.Provider{}, w.sid, files, pumptest.Run{})
			got := pumptest.Feed(t, claude.Provider{}, w.sid, files, pumptest.Run{Next: func(left []int) int { return left[rapid.IntRange(0, len(left)-1).Draw(t, "next file")] }})
			if d := pumptest.Diff(pumptest.Threads(whole), pumptest.Threads(got)); d != "" {
				n := 0
				for _, l := range w.files {
					n += len(l)
				}
				if n < best {
					best = n
					msg = w.f.version + d + "\n" + render(whole) + "\n======= got\n" + render(got)
					for p, l := range w.files {
						msg += "\n" + p
						for _, x := range l {
							msg += "\n   " + x
						}
					}
				}
			}
			return ""
		})
		_ = ex.Example(seed)
	}
	fmt.Println(msg)
}
