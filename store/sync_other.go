//go:build !unix

package store

// syncDir does nothing: directories cannot be synced here, and the file system
// journals renames itself.
func syncDir(string) error { return nil }
