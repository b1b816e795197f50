package lots

// Observe makes observe run at every step of a load.
func (l *Loader) Observe(observe func(step string)) { l.steps.Observe(observe) }
