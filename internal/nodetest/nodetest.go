// Package nodetest lets Go tests talk to the official JavaScript parts of the
// Happy wire, which test/node installs (`npm ci` there).
//
// A test asks Dir for that folder and Run for the output of one of its scripts.
// Where Node.js or the modules are missing, the test is skipped and says so: a
// checkout without Node still passes. Only tests import this package.
package nodetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Timeout is how long one script may run: far beyond what any needs, so that a
// script that hangs fails its test and not the whole run.
const Timeout = 60 * time.Second

// Dir returns the absolute path of test/node. It skips the test when there is
// no node on the PATH or the modules are not installed.
func Dir(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("skipping the interoperability test with the official JavaScript client: node is not installed")
	}
	dir, err := find()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err != nil {
		t.Skip("skipping the interoperability test with the official JavaScript client: run `npm ci` in test/node first")
	}
	return dir
}

// Run runs one script of test/node with the given standard input and returns
// its standard output. A script that fails, or runs longer than Timeout, fails
// the test with what it wrote to standard error.
func Run(t testing.TB, script string, stdin []byte) []byte {
	t.Helper()
	dir := Dir(t)
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("node %s: %v\n%s", script, err, stderr.Bytes())
	}
	return stdout.Bytes()
}

// find walks up from the working directory, which go test sets to the folder of
// the tested package, to the module's root.
func find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "test", "node"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}
