//go:build darwin || dragonfly || freebsd

package watch

import "golang.org/x/sys/unix"

// eventless says why changes below dir may come without events; empty if they do not.
func eventless(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil && uint64(st.Flags)&uint64(unix.MNT_LOCAL) == 0 {
		return "network file system"
	}
	return ""
}
