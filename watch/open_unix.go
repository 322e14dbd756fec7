//go:build unix

package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openRegular opens a regular file for reading. It follows no symbolic link in the last component, and O_NONBLOCK keeps a FIFO
// that took the file's place from blocking the open.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		// Linux and darwin say ELOOP for a link, FreeBSD EMLINK, NetBSD EFTYPE; ENXIO is a socket or a FIFO nobody reads.
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.ENXIO) {
			return nil, nil, fmt.Errorf("opening %s: %w", path, ErrNotRegular)
		}
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("opening %s: %w", path, ErrNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// statID returns the device and inode that a stat told, or zeros.
func statID(fi fs.FileInfo) (dev, ino uint64) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino) //nolint:unconvert // the types differ between systems
	}
	return 0, 0
}

// openID is statID for an open file.
func openID(_ *os.File, fi fs.FileInfo) (dev, ino uint64) { return statID(fi) }
