package consumer

// TurnKeepAliveOff makes the next subscriptions let their messages grow old.
func (s *Subscriber) TurnKeepAliveOff() { s.keepAliveOff = true }
