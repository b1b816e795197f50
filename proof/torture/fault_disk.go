package torture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

// diskSize is far more than a run writes; a disk uses memory
// only as it is written.
const diskSize = 8 << 30

// disks are the servers' disks that can be filled, where the
// machine can mount them.
type disks struct {
	redis, sql *machine.Disk
	missing    error // why there are none
}

// newDisks mounts the disks: of a single Redis only, as nodes with replicas
// share their configuration, and of the SQL server.
func (w *world) newDisks() (d disks) {
	if w.opt.Topology == Alone {
		d.redis, d.missing = machine.NewDisk(w.Program, diskSize)
	}
	if d.missing == nil {
		d.sql, d.missing = machine.NewDisk(w.Program, diskSize)
	}
	return d
}

// diskFaults fill a server's disk. A server that ends by that is
// restarted once there is space.
func diskFaults() []*fault {
	cannot := func(of func(w *world) *machine.Disk) func(w *world) string {
		return func(w *world) string {
			switch {
			case w.disks.missing != nil:
				return w.disks.missing.Error()
			case of(w) == nil:
				return "the nodes have no disks of their own"
			}
			return ""
		}
	}
	ofRedis := func(w *world) *machine.Disk { return w.disks.redis }
	ofSQL := func(w *world) *machine.Disk { return w.disks.sql }
	return []*fault{
		{name: "disk of redis is full", target: onRedis, weight: 3, lasts: span(200, 4000), cannot: cannot(ofRedis),
			inject: trying(func(w *world, s *injection) {
				w.disks.redis.Fill()
				wait(w.ctx, s.lasts)
				w.disks.redis.Free()
				if w.redis[0].Ended() { // as it does in mode fsync
					s.what = "it ended by that"
					w.redis[0].Kill()
					w.redis[0].StartRepaired()
				}
			})},
		{name: "disk of sql is full", target: onSQL, weight: 3, lasts: span(500, 6000), cannot: cannot(ofSQL),
			inject: func(w *world, s *injection) error {
				before, err := w.committed()
				if err != nil {
					return err
				}
				err = w.Try(func() {
					w.disks.sql.Fill()
					wait(w.ctx, s.lasts)
					w.disks.sql.Free()
					if w.sql.Ended() {
						s.what = "it ended by that"
					}
					w.startSQL()
				})
				if err != nil {
					return err
				}
				return w.requireCommitted(before)
			}},
	}
}

// sqlBackWithin is how long a restarted server may break
// connections of its predecessor.
const sqlBackWithin = 10 * time.Second

// committed lists the existing rows of claims and packets, which are never
// deleted, and the campaigns that have all packets added in the same
// transactions. A server whose disk was full may end only now.
func (w *world) committed() (rows []string, err error) {
	for until := time.Now().Add(sqlBackWithin); ; wait(w.ctx, readyEvery) {
		rows, err = w.strings("SELECT id FROM claims UNION ALL SELECT CONCAT(campaign_id, ' ', id) FROM packets UNION ALL" +
			" SELECT CONCAT('all packets of ', id) FROM campaigns WHERE kind = 'packet' AND total =" +
			" (SELECT COUNT(*) FROM packets WHERE packets.campaign_id = campaigns.id)")
		if err == nil || w.ctx.Err() != nil || time.Now().After(until) {
			return rows, err
		}
		if err := w.Try(w.startSQL); err != nil {
			return nil, err
		}
	}
}

// requireCommitted ends the round if the SQL server lost committed rows, or
// its indexes are corrupt, as MariaDB 10.11.19's sometimes are after a
// statement ran out of space. No claim can then be judged.
func (w *world) requireCommitted(before []string) error {
	now, err := w.committed()
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(now))
	for _, row := range now {
		there[row] = true
	}
	lost := slices.DeleteFunc(before, func(row string) bool { return there[row] })
	if len(lost) > 0 {
		return fmt.Errorf("%w: its disk was full, and it lost %d committed rows, among them %q; that is a fault of the SQL server,"+
			" not of Dibs", testenv.ErrServer, len(lost), lost[0])
	}
	var corrupt []string
	err = w.each(w.ctx, "CHECK TABLE claims, packets, lots, stock_flushes, outbox, parked_events", nil, func(scan func(...any) error) error {
		var table, op, kind, text string
		err := scan(&table, &op, &kind, &text)
		if text != "OK" {
			corrupt = append(corrupt, table+": "+text)
		}
		return err
	})
	if err == nil && len(corrupt) > 0 {
		err = fmt.Errorf("%w: its disk was full, and tables are corrupt: %s", testenv.ErrServer, strings.Join(corrupt, "; "))
	}
	return err
}

// startSQL restarts an SQL server that ended by itself.
func (w *world) startSQL() {
	if w.sql.Ended() {
		w.sql.Kill()
		w.sql.Start()
	}
}
