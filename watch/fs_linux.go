package watch

import "golang.org/x/sys/unix"

// eventless says why changes below dir may come without events; empty if they do not. On these file systems the kernel hears of
// changes made through this mount only, not of those of another machine or of the host.
func eventless(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC:
		return "network file system"
	case unix.V9FS_MAGIC:
		return "9p file system"
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE file system"
	}
	return ""
}
