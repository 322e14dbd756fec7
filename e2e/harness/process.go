package harness

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one life of the daemon.
type process struct {
	cmd   *exec.Cmd
	ready chan struct{} // closed when it says what it watches
	done  chan struct{} // closed when it has ended
	err   error         // how; set before done is closed
	told  time.Time     // when it was asked to end
}

// launch starts a daemon whose standard error is appended to a file.
func launch(argv, env []string, dir, logs string) (*process, error) {
	f, err := os.OpenFile(logs, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), ready: make(chan struct{}), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr, p.cmd.SysProcAttr = env, dir, f, childAttr()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}
	go func() {
		var once sync.Once
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "see it") {
				once.Do(func() { close(p.ready) })
			}
		}
		_, _ = io.Copy(io.Discard, out)
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) terminate() error {
	p.told = time.Now()
	return p.cmd.Process.Signal(syscall.SIGTERM)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
