package watch

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// eventless says why changes below dir may come without events; empty if they do not. A \\wsl.localhost path counts as remote.
func eventless(dir string) string {
	name, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err == nil && windows.GetDriveType(name) == windows.DRIVE_REMOTE {
		return "network drive"
	}
	return ""
}
