package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Build compiles the daemon into dir and returns the binary's path; HAPPYD_RACE=1 compiles the race detector in. An existing
// binary named by HAPPYD_BIN is taken instead.
func Build(dir string) (string, error) {
	if bin := os.Getenv("HAPPYD_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	bin := filepath.Join(dir, "happyd")
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	args := []string{"build", "-o", bin}
	if os.Getenv("HAPPYD_RACE") != "" {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "github.com/happyd/happyd/cmd/happyd")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building happyd: %w\n%s", err, out)
	}
	return bin, nil
}
