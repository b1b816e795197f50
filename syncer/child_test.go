package syncer_test

func childMain() {}
