package lots

// Observe makes observe run at every step of a load.
func (l *Loader) Observe(observe func(step string)) { l.steps.Observe(observe) }

// Waiting is how many lots wait for a group.
func (l *Loader) Waiting() int {
	l.groups.mu.Lock()
	defer l.groups.mu.Unlock()
	return len(l.groups.waiting)
}

// GroupsMax is how many groups are loaded at once.
const GroupsMax = groupsMax
