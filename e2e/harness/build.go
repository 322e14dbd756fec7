package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Build compiles the daemon into dir and returns the binary's path. An existing binary named by HAPPYD_BIN is taken instead.
func Build(dir string) (string, error) {
	if bin := os.Getenv("HAPPYD_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	bin := filepath.Join(dir, "happyd")
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	out, err := exec.Command("go", "build", "-o", bin, "github.com/happyd/happyd/cmd/happyd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building happyd: %w\n%s", err, out)
	}
	return bin, nil
}
