package expr

// newTimeArithmetic types + and - of dates, timestamps and intervals; nil when neither side is one.
func newTimeArithmetic(at place, op string, a, b node) (node, error) {
	ka, kb := kindOf(a.typ()), kindOf(b.typ())
	if !isTemporal(ka) && !isTemporal(kb) {
		return nil, nil
	}
	if op == "+" && (ka == kindInterval || ka == kindInt) {
		a, b, ka, kb = b, a, kb, ka
	}
	switch {
	case (op == "+" || op == "-") && ka == kindTime && kb == kindInterval:
		return addInterval(at, op, a, b), nil
	case (op == "+" || op == "-") && ka == kindDate && kb == kindInterval:
		return addToDate(at, op, a, b)
	case (op == "+" || op == "-") && ka == kindDate && kb == kindInt:
		return addDays(at, op, a, b), nil
	case op == "-" && ka == kindDate && kb == kindDate:
		return fold(&mapNode{t: typeInt32, at: at, args: []node{a, b},
			run: mapInts(func(k *kernel, i int) (int64, result) {
				return k.args[0].int(i) - k.args[1].int(i), isValue
			})}), nil
	}
	err := notNumbers(at, op, []node{a, b})
	err.Wanted = "a date or timestamp and an INTERVAL, or a date and days"
	if ka == kindTime || kb == kindTime {
		err.Hint = "datediff('second', a, b) or epoch_ms(a) - epoch_ms(b) give the difference of timestamps"
	}
	return nil, err
}

func isTemporal(k kind) bool { return k == kindDate || k == kindTime || k == kindInterval }

// intervalOf is the value of an interval, which is always a constant, negated for "-".
func intervalOf(op string, n node) interval {
	v := n.(*constNode).value
	iv := interval{months: v.ints[0], micros: v.ints[1]}
	if op == "-" {
		iv.months, iv.micros = -iv.months, -iv.micros
	}
	return iv
}

func addInterval(at place, op string, a, b node) node {
	iv := intervalOf(op, b)
	return fold(&mapNode{t: a.typ(), at: at, args: []node{a}, rising: true,
		run: mapInts(func(k *kernel, i int) (int64, result) {
			v, err := iv.addTo(k.args[0].int(i))
			if err != nil {
				k.fault(i, "%s %s INTERVAL: %v", textOf(k.args[0], i, nil), op, err)
			}
			return v, isValue
		})})
}

// addToDate gives a date for whole days and months, else a timestamp_ntz.
func addToDate(at place, op string, a, b node) (node, error) {
	iv := intervalOf(op, b)
	if !iv.wholeDays() {
		a, err := newCast(at, a, typeNTZ, false)
		if err != nil {
			return nil, err
		}
		return addInterval(at, op, a, b), nil
	}
	return fold(&mapNode{t: typeDate, at: at, args: []node{a}, rising: true,
		run: mapInts(func(k *kernel, i int) (int64, result) {
			v, err := iv.addTo(k.args[0].int(i) * microsPerDay)
			if err != nil {
				k.fault(i, "%s %s INTERVAL: %v", textOf(k.args[0], i, nil), op, err)
			}
			return floorDiv(v, microsPerDay), isValue
		})}), nil
}

// addDays moves a date by whole days.
func addDays(at place, op string, a, b node) node {
	return fold(&mapNode{t: typeDate, at: at, args: []node{a, b},
		run: mapInts(func(k *kernel, i int) (int64, result) {
			days, by := k.args[0].int(i), k.args[1].int(i)
			if op == "-" {
				by = -by
			}
			if by > 2*maxDays || by < -2*maxDays || checkDays(days+by) != nil {
				k.fault(i, "%s %s %d days: %v", appendDate(nil, days), op, k.args[1].int(i), errYears)
				return 0, isValue
			}
			return days + by, isValue
		})})
}
