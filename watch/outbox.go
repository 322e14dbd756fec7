package watch

import (
	"cmp"
	"slices"
)

// An outbox gathers the events of one step of the watcher, one per path.
type outbox struct {
	events []Event
	last   map[[2]string]int // by root and path: the index of the path's last event
}

func (o *outbox) add(e Event) {
	key := [2]string{e.RootPath, e.Path}
	if i, ok := o.last[key]; ok {
		switch before := &o.events[i]; {
		case e.Op == Changed:
			e.Op = before.Op
			*before = e
			return
		case e.Op == Gone && before.Op == Seen:
			before.Op = 0 // nobody has heard of it
			delete(o.last, key)
			return
		case e.Op == Gone:
			*before = e
			return
		}
	}
	if o.last == nil {
		o.last = map[[2]string]int{}
	}
	o.last[key] = len(o.events)
	o.events = append(o.events, e)
}

// take empties the outbox. What is gone or has changed comes as it was found, then what is new by priority, so that a main file comes before
// those of its subagents also when a whole tree appears at once.
func (o *outbox) take(roots []*root) []Event {
	events := slices.DeleteFunc(o.events, func(e Event) bool { return e.Op == 0 })
	*o = outbox{}
	rank := func(e Event) int {
		for _, r := range roots {
			if r.Path == e.RootPath && r.Priority != nil {
				return r.Priority(e.Rel)
			}
		}
		return 0
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		if a.Op != Seen || b.Op != Seen {
			return cmp.Compare(a.Op.order(), b.Op.order())
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Path, b.Path))
	})
	return events
}

// order puts Seen behind the others.
func (o Op) order() int {
	if o == Seen {
		return 1
	}
	return 0
}
