package shards

// Observe has observe called at each step, see steps.Steps.
func (m *Mover) Observe(observe func(step string)) { m.steps.Observe(observe) }
