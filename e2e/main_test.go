//go:build unix

package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/happyd/happyd/e2e/harness"
)

// bin is the daemon under test.
var bin string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	// The tests mostly wait for graces and timeouts, each beside the others.
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(f.DefValue) {
		_ = f.Value.Set("20")
	}
	dir, err := os.MkdirTemp("", "happyd-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if bin, err = harness.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// machine makes a machine with the daemon under test.
func machine(t testing.TB, o harness.Options) *harness.Machine {
	t.Helper()
	o.Bin = bin
	return harness.New(t, o)
}

// shared is a folder of cases or logs that lie beside the repository; the test is skipped where they are not.
func shared(t testing.TB, path string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "shared", path))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no ../shared/%s here", path)
	}
	return dir
}
