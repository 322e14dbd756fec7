package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"
	"time"

	"github.com/spf13/cobra"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/protocol"
)

func newMapCmd(a *app) *cobra.Command {
	var home string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "map FILE|DIR...",
		Short: "Print the envelopes of logs, without a network",
		Long: `map turns logs into the envelopes that would be sent, one JSON object a line:
{"session":"<native id>","env":{…}}. Nothing is sent or stored: it is for dry
runs, bug reports and tests. What was left out is counted on standard error.

A FILE is a session's log; its subagents' files are found beside it. A DIR is an
agent's home (~/.claude, ~/.codex) or a folder inside one. --home takes a user's
home directory with all agents in it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && home == "" {
				return errors.New("name a log, a directory, or --home")
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.Flags().StringVar(&home, "home", "", "map the agents of a whole home `DIR`")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not say what was left out")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		out := bufio.NewWriter(a.stdout)
		report := io.Writer(a.stderr)
		if quiet {
			report = io.Discard
		}
		err := mapLogs(out, report, home, args)
		return errors.Join(err, out.Flush())
	}
	return cmd
}

func mapLogs(w, report io.Writer, home string, paths []string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	emit := func(session string, e protocol.Envelope) error {
		b, err := e.MarshalJSON()
		if err != nil {
			return fmt.Errorf("encode envelope: %w", err)
		}
		return enc.Encode(struct {
			Session string          `json:"session"`
			Env     json.RawMessage `json:"env"`
		}{session, b})
	}
	now := time.Now().UnixMilli()
	total := bridge.MapResult{Skipped: map[string]int{}}
	add := func(res bridge.MapResult) {
		total.Sessions += res.Sessions
		total.Orphans += res.Orphans
		total.Reader.Add(res.Reader)
		for k, n := range res.Skipped {
			total.Skipped[k] += n
		}
	}
	if home != "" {
		for _, p := range providers() {
			res, err := bridge.MapHome(p, filepath.Join(home, "."+p.Name()), adapters.SessionOptions{}, now, emit)
			if add(res); err != nil {
				return err
			}
		}
	}
	for _, path := range paths {
		res, err := mapPath(path, now, emit)
		if add(res); err != nil {
			return err
		}
	}
	reportMap(report, total)
	return nil
}

// mapPath asks the providers for the one whose log a path is. The one with the plainest names comes last.
func mapPath(path string, now int64, emit bridge.Emit) (bridge.MapResult, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return bridge.MapResult{}, fmt.Errorf("resolve path: %w", err)
	}
	all := providers()
	for i := len(all) - 1; i >= 0; i-- {
		res, ok, err := bridge.MapPath(all[i], path, adapters.SessionOptions{}, now, emit)
		if ok || err != nil {
			return res, err
		}
	}
	return bridge.MapResult{}, fmt.Errorf("%s is no log of a known agent", path)
}

func reportMap(w io.Writer, r bridge.MapResult) {
	fmt.Fprintf(w, "%s", plural(r.Sessions, "session"))
	if r.Orphans > 0 {
		fmt.Fprintf(w, ", %s of subagents without a parent", plural(r.Orphans, "record"))
	}
	fmt.Fprintln(w)
	keys := make([]string, 0, len(r.Skipped))
	for k := range r.Skipped {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		if r.Skipped[keys[i]] != r.Skipped[keys[j]] {
			return r.Skipped[keys[i]] > r.Skipped[keys[j]]
		}
		return keys[i] < keys[j]
	})
	for _, k := range keys {
		fmt.Fprintf(w, "  left out %6d  %s\n", r.Skipped[k], printable(k))
	}
	if n := r.Reader.Invalid + r.Reader.NUL + r.Reader.Glued + r.Reader.Oversize; n > 0 {
		fmt.Fprintf(w, "  lines: %d no JSON object, %d with NUL bytes, %d glued, %d oversize\n",
			r.Reader.Invalid, r.Reader.NUL, r.Reader.Glued, r.Reader.Oversize)
	}
}
