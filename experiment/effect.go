package experiment

import "context"

// effectHistory bounds how many applies LastEffect looks through.
const effectHistory = 500

// LastEffect returns the latest effect of a hint with its lanes on a device with a firmware, and the
// experiment that showed it; the id is "" when it was never measured.
func (d *DB) LastEffect(ctx context.Context, device, firmware string, hint int64, lanes string) (Effect, string, error) {
	list, err := d.List(ctx, Filter{Kind: Apply, Device: device})
	if err != nil {
		return Effect{}, "", err
	}
	for _, e := range list[:min(len(list), effectHistory)] {
		for _, f := range e.Effects {
			if f.Step == StepHint && f.Device == device && f.Firmware == firmware && f.Lanes == lanes && f.Hint != nil && *f.Hint == hint {
				return f, e.ID, nil
			}
		}
	}
	return Effect{}, "", nil
}
