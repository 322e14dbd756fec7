//go:build unix

package bridge

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// processAlive says whether the process that a file describes still runs. start guards against reuse of the pid where the
// system tells (Linux: field 22 of /proc/<pid>/stat).
func processAlive(pid int, start string) bool {
	if pid <= 0 {
		return false
	}
	if runtime.GOOS == "linux" {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return false
		}
		f := statFields(string(data))
		if len(f) < 20 {
			return true
		}
		if f[0] == "Z" {
			return false
		}
		return start == "" || f[19] == start
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// statFields returns the fields of a /proc stat line behind the command name, which may hold anything: state, ppid, …
func statFields(s string) []string {
	i := strings.LastIndexByte(s, ')')
	if i < 0 {
		return nil
	}
	return strings.Fields(s[i+1:])
}

// ancestors returns the command lines of a process's parents, nearest first, where the system tells (Linux).
func ancestors(pid int) []string {
	var out []string
	for range 8 {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			break
		}
		f := statFields(string(data))
		if len(f) < 2 {
			break
		}
		if pid, err = strconv.Atoi(f[1]); err != nil || pid <= 1 {
			break
		}
		cmd, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil {
			break
		}
		out = append(out, strings.ReplaceAll(string(cmd), "\x00", " "))
	}
	return out
}
