package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	socketName = "control.sock"
	// pointerName holds the socket's path where the state directory's own path
	// is too long for one.
	pointerName = "control.path"
	// maxSocketPath is what all systems accept (macOS: 104 with the final NUL).
	maxSocketPath = 103
)

// socketPath finds the socket of the daemon with this state directory.
func socketPath(stateDir string) string {
	if path := filepath.Join(stateDir, socketName); len(path) <= maxSocketPath {
		return path
	}
	// The pointer lies in a directory that only this user can write to.
	data, err := os.ReadFile(filepath.Join(stateDir, pointerName))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// listen opens the socket. The caller holds the state directory's lock, so a
// socket that is still there belongs to a daemon that died. The function
// returned removes what was created.
func listen(stateDir string) (net.Listener, func(), error) {
	if err := protect(stateDir); err != nil {
		return nil, nil, err
	}
	if err := refuseLiving(stateDir); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(stateDir, socketName)
	cleanup := func() { os.Remove(path) }
	if len(path) > maxSocketPath {
		short, err := shortPath(stateDir)
		if err != nil {
			return nil, nil, err
		}
		path = short
		cleanup = func() {
			os.Remove(filepath.Join(stateDir, pointerName))
			os.RemoveAll(filepath.Dir(path))
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("removing a stale control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		cleanup()
		return nil, nil, fmt.Errorf("opening the control socket: %w", err)
	}
	// Nobody else gets this far before the chmod: the directory is 0700.
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		cleanup()
		return nil, nil, fmt.Errorf("protecting the control socket: %w", err)
	}
	return l, cleanup, nil
}

// protect makes sure that the state directory is there and closed to others.
func protect(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating the state directory: %w", err)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("looking at the state directory: %w", err)
	case info.Mode()&fs.ModeSticky != 0:
		// Closing /tmp would be a bad thank-you for a mistyped setting.
		return fmt.Errorf("%s is a directory that users share: choose one of its own as state_dir", dir)
	case info.Mode().Perm()&0o077 == 0:
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil { // made by hand, or with another umask
		return fmt.Errorf("protecting the state directory: %w", err)
	}
	return nil
}

// refuseLiving makes sure that no other daemon is served by the socket.
func refuseLiving(stateDir string) error {
	path := socketPath(stateDir)
	if path == "" {
		return nil
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil // stale or absent
	}
	conn.Close()
	return fmt.Errorf("another happyd is running with the state directory %s", stateDir)
}

// shortPath makes a private directory with a short name for the socket and
// leaves a pointer to it in the state directory.
func shortPath(stateDir string) (string, error) {
	if old := socketPath(stateDir); filepath.Base(old) == socketName && strings.HasPrefix(filepath.Base(filepath.Dir(old)), "happyd-") {
		os.RemoveAll(filepath.Dir(old)) // of a daemon that died
	}
	dir, err := os.MkdirTemp("", "happyd-") // mode 0700
	if err != nil {
		return "", fmt.Errorf("creating a directory for the control socket: %w", err)
	}
	path := filepath.Join(dir, socketName)
	err = fmt.Errorf("no short enough path for the control socket: %s", path)
	if len(path) <= maxSocketPath {
		err = os.WriteFile(filepath.Join(stateDir, pointerName), []byte(path+"\n"), 0o600)
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", err
	}
	return path, nil
}
