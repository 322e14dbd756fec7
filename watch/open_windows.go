package watch

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// openRegular opens a regular file for reading. It shares every access, deletion too, so that the agent that owns the file never
// notices, and opens a link itself rather than its target, so that links can be refused.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil, windows.OPEN_EXISTING,
		windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_OPEN_REPARSE_POINT|windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if t, err := windows.GetFileType(h); err != nil || t != windows.FILE_TYPE_DISK {
		windows.CloseHandle(h)
		return nil, nil, fmt.Errorf("opening %s: %w", path, ErrNotRegular)
	}
	f := os.NewFile(uintptr(h), path)
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

// statID returns zeros: a stat tells no identity on Windows.
func statID(fs.FileInfo) (dev, ino uint64) { return 0, 0 }

// openID returns the volume and the file's index, which only an open file tells.
func openID(f *os.File, _ fs.FileInfo) (dev, ino uint64) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return 0, 0
	}
	return uint64(info.VolumeSerialNumber), uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow)
}
