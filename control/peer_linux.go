package control

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the user at the other end of a unix connection.
func peerUID(c *net.UnixConn) (uid uint32, known bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, true, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, true, err
	}
	if credErr != nil {
		return 0, true, credErr
	}
	return cred.Uid, true, nil
}
