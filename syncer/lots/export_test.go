package lots

func (l *Loader) Observe(observe func(step string)) { l.steps.Observe(observe) }

func (l *Loader) Waiting() int {
	l.groups.mu.Lock()
	defer l.groups.mu.Unlock()
	return len(l.groups.waiting)
}

const GroupsMax = groupsMax
