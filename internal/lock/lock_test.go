package lock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain turns the test binary into a process that holds a lock until its
// standard input ends.
func TestMain(m *testing.M) {
	if args := os.Getenv("LOCK_TEST_HOLD"); args != "" {
		part := strings.Split(args, "|")
		l, err := Acquire(part[0], part[1], part[2])
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println("held")
		io.Copy(io.Discard, os.Stdin)
		l.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hold starts such a process; stop kills it without warning.
func hold(t *testing.T, dir, home, account string) (pid int, stop func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOCK_TEST_HOLD="+strings.Join([]string{dir, home, account}, "|"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cmd.Process.Kill()
			in.Close()
			cmd.Wait()
		}
	}
	t.Cleanup(stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	return cmd.Process.Pid, stop
}

func TestSecondProcessIsRefusedUntilTheFirstDies(t *testing.T) {
	dir, home := filepath.Join(t.TempDir(), "locks"), t.TempDir()
	pid, stop := hold(t, dir, home, "account")

	_, err := Acquire(dir, home, "account")
	var held *HeldError
	if !errors.As(err, &held) {
		t.Fatalf("got %v", err)
	}
	if held.PID != pid || held.Home != home {
		t.Errorf("got %+v, want process %d", held, pid)
	}

	stop() // killed: the file stays, the lock does not
	l, err := Acquire(dir, home, "account")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestOtherHomesAndAccountsAreFree(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	for _, tt := range []struct{ home, account string }{
		{home, "a"}, {home, "b"}, {filepath.Join(home, "sub"), "a"},
	} {
		l, err := Acquire(dir, tt.home, tt.account)
		if err != nil {
			t.Fatalf("%+v: %v", tt, err)
		}
		defer l.Close()
	}
	if _, err := Acquire(dir, home, "a"); err == nil {
		t.Error("the same process got the lock twice")
	}
}

func TestLinksNameTheSameHome(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	real, link := filepath.Join(root, "real"), filepath.Join(root, "link")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Skip("no symbolic links here")
	}
	l, err := Acquire(dir, filepath.Join(real, "not-yet"), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Acquire(dir, filepath.Join(link, "not-yet"), "a"); err == nil {
		t.Error("two names of one directory gave two locks")
	}
}

func TestForeignContentIsNoObstacle(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, name(home, "a"))
	if err := os.WriteFile(path, []byte("{\"pid\": 1}"+strings.Repeat("x", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Acquire(dir, home, "a")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	info, err := os.Stat(path)
	if err != nil || info.Size() != 0 {
		t.Errorf("after release: %v, %v", info, err)
	}
}

func TestNoSecretInTheFileName(t *testing.T) {
	if n := name("/home/u/.claude", "account-key"); strings.Contains(n, "claude") || strings.Contains(n, "account") {
		t.Errorf("name %q", n)
	}
}
