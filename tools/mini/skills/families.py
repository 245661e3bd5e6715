"""The families of small functions: one description, three languages, and a reference for the tests.

Placeholders: $a $b $c arguments, $k a constant, $i $x $s local names. `args` gives the kinds: I int, L list
of int, S string, R string to change; N P Q integers of the ranges that skills.code tests with. In C a list
argument is `const int *$a, int n`. A missing language is an empty string.
"""
from collections import namedtuple

Family = namedtuple("Family", "key words desc args ret py c js ref")


def f(key, words, desc, args, ret, ref, py, c="", js=""):
    return Family(key, words.split(), desc.split("|"), args, ret, py.strip("\n"), c.strip("\n"), js.strip("\n"), ref)


def loop(key, words, desc, ref, init, step, after="return $s", cond="", ret="I"):
    """A function that walks over a list once; `step` and `cond` are written alike in all three languages."""
    def block(ind, head, tail, end, decl, fin):
        body = [f"{ind}{decl}$s = {init}{end}", f"{ind}{head}"]
        if cond:
            open_if, close = (f"if {cond}:", "") if not end else (f"if ({cond}) {{", "}")
            body += [f"{ind * 2}{open_if}", f"{ind * 3}{step}{end}"] + ([f"{ind * 2}{close}"] if close else [])
        else:
            body.append(f"{ind * 2}{step}{end}")
        if tail:
            body.append(f"{ind}{tail}")
        return "\n".join(body + [f"{ind}{fin}{end}"])
    return f(key, words, desc, "L", ret, ref, block("    ", "for $x in $a:", "", "", "", after),
             block("    ", "for (int $i = 0; $i < n; $i++) {", "}", ";", "int ", after).replace("$x", "$a[$i]"),
             block("    ", "for (const $x of $a) {", "}", ";", "let ", after).replace(" == ", " === ").replace(" != ", " !== "))


def expr(key, words, desc, args, ret, ref, py, c=None, js=None):
    """A function of one expression."""
    js = py if js is None else js
    c = py if c is None else c
    return f(key, words, desc, args, ret, ref, f"    return {py}", f"    return {c};" if c else "",
             f"    return {js};" if js else "")


def prod(v):
    r = 1
    for x in v:
        r *= x
    return r


def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def collatz(n):
    s = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        s += 1
    return s


def digit_sum(n):
    return sum(map(int, str(n)))


FAMILIES = [
    loop("sum", "sum total add_up sum_of",
         "returns the sum of a list of integers|adds up all numbers in a list",
         lambda a, k: sum(a), "0", "$s += $x"),
    loop("product", "product multiply_all",
         "returns the product of all numbers in a list|multiplies all numbers of a list",
         lambda a, k: prod(a), "1", "$s *= $x"),
    loop("count_even", "count_even num_even evens",
         "counts the even numbers in a list|returns how many numbers in a list are even",
         lambda a, k: sum(x % 2 == 0 for x in a), "0", "$s += 1", cond="$x % 2 == 0"),
    loop("count_odd", "count_odd num_odd odds",
         "counts the odd numbers in a list|returns how many numbers in a list are odd",
         lambda a, k: sum(x % 2 != 0 for x in a), "0", "$s += 1", cond="$x % 2 != 0"),
    loop("sum_even", "sum_even even_sum",
         "returns the sum of the even numbers in a list|adds up only the even numbers of a list",
         lambda a, k: sum(x for x in a if x % 2 == 0), "0", "$s += $x", cond="$x % 2 == 0"),
    loop("count_above", "count_above num_greater",
         "counts the numbers in a list that are greater than $k|returns how many numbers in a list exceed $k",
         lambda a, k: sum(x > k for x in a), "0", "$s += 1", cond="$x > $k"),
    loop("count_below", "count_below num_less",
         "counts the numbers in a list that are less than $k|returns how many numbers in a list are below $k",
         lambda a, k: sum(x < k for x in a), "0", "$s += 1", cond="$x < $k"),
    loop("count_equal", "count_equal occurrences_of",
         "counts how often $k occurs in a list|returns the number of times $k is in a list",
         lambda a, k: sum(x == k for x in a), "0", "$s += 1", cond="$x == $k"),
    loop("count_divisible", "count_divisible multiples",
         "counts the numbers in a list that are divisible by $k|returns how many multiples of $k a list has",
         lambda a, k: sum(x % k == 0 for x in a), "0", "$s += 1", cond="$x % $k == 0"),
    loop("sum_above", "sum_above sum_greater",
         "returns the sum of the numbers in a list that are greater than $k|adds up all numbers above $k in a list",
         lambda a, k: sum(x for x in a if x > k), "0", "$s += $x", cond="$x > $k"),
    loop("sum_squares", "sum_squares square_sum",
         "returns the sum of the squares of a list|adds up the squares of all numbers in a list",
         lambda a, k: sum(x * x for x in a), "0", "$s += $x * $x"),
    loop("maximum", "maximum largest find_max biggest",
         "returns the largest number in a list|finds the maximum of a list",
         lambda a, k: max(a), "$a[0]", "$s = $x", cond="$x > $s"),
    loop("minimum", "minimum smallest find_min least",
         "returns the smallest number in a list|finds the minimum of a list",
         lambda a, k: min(a), "$a[0]", "$s = $x", cond="$x < $s"),
    f("contains", "contains has_value includes",
      "checks whether a list contains $k|tells if $k is in a list", "L", "B",
      lambda a, k: k in a, """
    for $x in $a:
        if $x == $k:
            return True
    return False""", """
    for (int $i = 0; $i < n; $i++) {
        if ($a[$i] == $k) {
            return 1;
        }
    }
    return 0;""", """
    for (const $x of $a) {
        if ($x === $k) {
            return true;
        }
    }
    return false;"""),
    f("index_of", "index_of find_index position",
      "returns the index of the first $k in a list, or -1|finds the first position of $k in a list and returns -1 if there is none",
      "L", "I", lambda a, k: a.index(k) if k in a else -1, """
    for $i in range(len($a)):
        if $a[$i] == $k:
            return $i
    return -1""", """
    for (int $i = 0; $i < n; $i++) {
        if ($a[$i] == $k) {
            return $i;
        }
    }
    return -1;""", """
    for (let $i = 0; $i < $a.length; $i++) {
        if ($a[$i] === $k) {
            return $i;
        }
    }
    return -1;"""),
    f("is_sorted", "is_sorted ascending check_order",
      "checks whether a list is sorted in ascending order|tells if the numbers of a list never decrease",
      "L", "B", lambda a, k: a == sorted(a), """
    for $i in range(1, len($a)):
        if $a[$i] < $a[$i - 1]:
            return False
    return True""", """
    for (int $i = 1; $i < n; $i++) {
        if ($a[$i] < $a[$i - 1]) {
            return 0;
        }
    }
    return 1;""", """
    for (let $i = 1; $i < $a.length; $i++) {
        if ($a[$i] < $a[$i - 1]) {
            return false;
        }
    }
    return true;"""),
    f("range", "value_range spread span",
      "returns the difference between the largest and the smallest number of a list|computes maximum minus minimum of a list",
      "L", "I", lambda a, k: max(a) - min(a), "    return max($a) - min($a)", """
    int lo = $a[0];
    int hi = $a[0];
    for (int $i = 1; $i < n; $i++) {
        if ($a[$i] < lo) {
            lo = $a[$i];
        }
        if ($a[$i] > hi) {
            hi = $a[$i];
        }
    }
    return hi - lo;""", "    return Math.max(...$a) - Math.min(...$a);"),
    f("second", "second_largest runner_up",
      "returns the second largest number of a list|finds the second largest value in a list", "L", "I",
      lambda a, k: sorted(a)[-2], "    return sorted($a)[-2]", "", """
    const $s = [...$a].sort((p, q) => p - q);
    return $s[$s.length - 2];"""),
    expr("add_k", "add_to_all shift_all",
         "adds $k to every number of a list|returns a list with every number increased by $k", "L", "L",
         lambda a, k: [x + k for x in a], "[$x + $k for $x in $a]", "", "$a.map(($x) => $x + $k)"),
    expr("scale", "scale_all multiply_each",
         "multiplies every number of a list by $k|returns a list with every number times $k", "L", "L",
         lambda a, k: [x * k for x in a], "[$x * $k for $x in $a]", "", "$a.map(($x) => $x * $k)"),
    expr("squares", "squares square_all",
         "returns a list of the squares of all numbers|squares every number of a list", "L", "L",
         lambda a, k: [x * x for x in a], "[$x * $x for $x in $a]", "", "$a.map(($x) => $x * $x)"),
    expr("keep_above", "keep_above filter_greater",
         "returns the numbers of a list that are greater than $k|keeps only the numbers above $k", "L", "L",
         lambda a, k: [x for x in a if x > k], "[$x for $x in $a if $x > $k]", "", "$a.filter(($x) => $x > $k)"),
    expr("keep_even", "keep_even only_even",
         "returns the even numbers of a list|keeps only the even numbers of a list", "L", "L",
         lambda a, k: [x for x in a if x % 2 == 0], "[$x for $x in $a if $x % 2 == 0]", "", "$a.filter(($x) => $x % 2 === 0)"),
    expr("keep_multiples", "keep_multiples only_multiples",
         "returns the numbers of a list that are divisible by $k|keeps only the multiples of $k",
         "L", "L", lambda a, k: [x for x in a if x % k == 0], "[$x for $x in $a if $x % $k == 0]", "", "$a.filter(($x) => $x % $k === 0)"),
    expr("reverse_list", "reverse_list reversed_copy",
         "returns a list in reverse order|reverses a list", "L", "L",
         lambda a, k: a[::-1], "$a[::-1]", "", "[...$a].reverse()"),
    expr("first_k", "first_items take",
         "returns the first $k elements of a list|takes the first $k items of a list", "L", "L",
         lambda a, k: a[:k], "$a[:$k]", "", "$a.slice(0, $k)"),
    expr("drop_k", "drop_items skip",
         "returns a list without its first $k elements|drops the first $k items of a list", "L", "L",
         lambda a, k: a[k:], "$a[$k:]", "", "$a.slice($k)"),
    expr("every_k", "every_nth step_through",
         "returns every $k-th element of a list, starting with the first|picks every $k-th item of a list",
         "L", "L", lambda a, k: a[::k], "$a[::$k]", "", "$a.filter((_, $i) => $i % $k === 0)"),
    expr("sort_list", "sort_list in_order",
         "returns a list sorted in ascending order|sorts the numbers of a list, smallest first", "L", "L",
         lambda a, k: sorted(a), "sorted($a)", "", "[...$a].sort((p, q) => p - q)"),
    expr("sort_desc", "sort_descending largest_first",
         "returns a list sorted in descending order|sorts the numbers of a list, largest first", "L", "L",
         lambda a, k: sorted(a, reverse=True), "sorted($a, reverse=True)", "", "[...$a].sort((p, q) => q - p)"),
    f("unique", "unique remove_duplicates distinct",
      "removes duplicates from a list and keeps the order|returns each number of a list once", "L", "L",
      lambda a, k: list(dict.fromkeys(a)), """
    $s = []
    for $x in $a:
        if $x not in $s:
            $s.append($x)
    return $s""", "", "    return [...new Set($a)];"),
    f("running_sum", "running_sum prefix_sums cumulative",
      "returns the running sums of a list|computes the cumulative sums of a list", "L", "L",
      lambda a, k: [sum(a[:i + 1]) for i in range(len(a))], """
    $s = 0
    out = []
    for $x in $a:
        $s += $x
        out.append($s)
    return out""", "", """
    let $s = 0;
    const out = [];
    for (const $x of $a) {
        $s += $x;
        out.push($s);
    }
    return out;"""),
    f("differences", "differences deltas",
      "returns the differences between neighbors in a list|computes each number minus the one before it",
      "L", "L",
      lambda a, k: [a[i] - a[i - 1] for i in range(1, len(a))], "    return [$a[$i] - $a[$i - 1] for $i in range(1, len($a))]"),
    expr("maximum2", "max_of_two larger",
         "returns the larger of two numbers|finds the maximum of two integers", "II", "I",
         lambda a, b, k: max(a, b), "$a if $a > $b else $b", "$a > $b ? $a : $b", "$a > $b ? $a : $b"),
    expr("minimum2", "min_of_two smaller",
         "returns the smaller of two numbers|finds the minimum of two integers", "II", "I",
         lambda a, b, k: min(a, b), "$a if $a < $b else $b", "$a < $b ? $a : $b", "$a < $b ? $a : $b"),
    expr("abs_diff", "abs_diff distance gap",
         "returns the absolute difference of two numbers|computes how far two numbers are apart", "II", "I",
         lambda a, b, k: abs(a - b), "abs($a - $b)", "$a > $b ? $a - $b : $b - $a", "Math.abs($a - $b)"),
    expr("add", "add plus sum_two",
         "returns the sum of two numbers|adds two numbers", "II", "I", lambda a, b, k: a + b, "$a + $b"),
    expr("multiply", "multiply times",
         "returns the product of two numbers|multiplies two numbers",
         "II", "I", lambda a, b, k: a * b, "$a * $b"),
    expr("subtract", "subtract minus",
         "returns the difference of two numbers|subtracts the second number from the first", "II", "I",
         lambda a, b, k: a - b, "$a - $b"),
    expr("add_const", "add_const increase_by",
         "adds $k to a number|returns a number plus $k", "I", "I", lambda a, k: a + k, "$a + $k"),
    expr("times_const", "times_const scale_by",
         "multiplies a number by $k|returns a number times $k", "I", "I", lambda a, k: a * k, "$a * $k"),
    expr("square", "square squared",
         "returns the square of a number|squares a number", "I", "I", lambda a, k: a * a, "$a * $a"),
    expr("cube", "cube cubed",
         "returns the cube of a number|computes the third power of a number",
         "Q", "I", lambda a, k: a ** 3, "$a * $a * $a"),
    expr("is_even", "is_even even",
         "checks whether a number is even|tells if a number is even", "I", "B", lambda a, k: a % 2 == 0,
         "$a % 2 == 0", None, "$a % 2 === 0"),
    expr("is_odd", "is_odd odd",
         "checks whether a number is odd|tells if a number is odd", "I", "B", lambda a, k: a % 2 != 0,
         "$a % 2 != 0", None, "$a % 2 !== 0"),
    expr("divisible", "is_divisible multiple_of",
         "checks whether a number is divisible by $k|tells if a number is a multiple of $k", "I", "B",
         lambda a, k: a % k == 0, "$a % $k == 0", None, "$a % $k === 0"),
    expr("in_range", "in_range between",
         "checks whether a number is between 0 and $k|tells if a number lies from 0 to $k", "I", "B",
         lambda a, k: 0 <= a <= k, "0 <= $a <= $k", "$a >= 0 && $a <= $k", "$a >= 0 && $a <= $k"),
    expr("area", "area rectangle_area",
         "returns the area of a rectangle|computes the area from width and height",
         "II", "I", lambda a, b, k: a * b, "$a * $b"),
    expr("perimeter", "perimeter rectangle_perimeter",
         "returns the perimeter of a rectangle|computes the perimeter from width and height", "II", "I",
         lambda a, b, k: 2 * (a + b), "2 * ($a + $b)"),
    expr("leap_year", "is_leap_year leap",
         "checks whether a year is a leap year|tells if a year has 366 days", "I", "B",
         lambda a, k: a % 4 == 0 and a % 100 != 0 or a % 400 == 0, "$a % 4 == 0 and $a % 100 != 0 or $a % 400 == 0",
         "($a % 4 == 0 && $a % 100 != 0) || $a % 400 == 0", "($a % 4 === 0 && $a % 100 !== 0) || $a % 400 === 0"),
    expr("last_digit", "last_digit ones_digit",
         "returns the last digit of a positive number|gives the ones digit of a number", "I", "I",
         lambda a, k: a % 10, "$a % 10"),
    f("sign", "sign signum",
      "returns 1, 0 or -1 depending on the sign of a number|computes the sign of a number", "I", "I",
      lambda a, k: (a > 0) - (a < 0), """
    if $a > 0:
        return 1
    if $a < 0:
        return -1
    return 0""", """
    if ($a > 0) {
        return 1;
    }
    if ($a < 0) {
        return -1;
    }
    return 0;""", """
    if ($a > 0) {
        return 1;
    }
    if ($a < 0) {
        return -1;
    }
    return 0;"""),
    f("clamp", "clamp limit_to",
      "limits a number to the range from 0 to $k|clamps a number between 0 and $k", "I", "I",
      lambda a, k: min(max(a, 0), k), """
    if $a < 0:
        return 0
    if $a > $k:
        return $k
    return $a""", """
    if ($a < 0) {
        return 0;
    }
    if ($a > $k) {
        return $k;
    }
    return $a;""", """
    if ($a < 0) {
        return 0;
    }
    if ($a > $k) {
        return $k;
    }
    return $a;"""),
    f("factorial", "factorial fact",
      "returns the factorial of a number|computes n factorial",
      "N", "I", lambda a, k: prod(range(1, a + 1)), """
    $s = 1
    for $i in range(2, $a + 1):
        $s *= $i
    return $s""", """
    int $s = 1;
    for (int $i = 2; $i <= $a; $i++) {
        $s *= $i;
    }
    return $s;""", """
    let $s = 1;
    for (let $i = 2; $i <= $a; $i++) {
        $s *= $i;
    }
    return $s;"""),
    f("triangular", "triangular sum_to",
      "returns the sum of the numbers from 1 to n|adds up all integers from 1 to n", "N", "I",
      lambda a, k: a * (a + 1) // 2, """
    $s = 0
    for $i in range(1, $a + 1):
        $s += $i
    return $s""", """
    int $s = 0;
    for (int $i = 1; $i <= $a; $i++) {
        $s += $i;
    }
    return $s;""", """
    let $s = 0;
    for (let $i = 1; $i <= $a; $i++) {
        $s += $i;
    }
    return $s;"""),
    f("fibonacci", "fibonacci fib",
      "returns the n-th Fibonacci number|computes the n-th number of the Fibonacci sequence",
      "N", "I", lambda a, k: fib(a), """
    p, q = 0, 1
    for _ in range($a):
        p, q = q, p + q
    return p""", """
    int p = 0;
    int q = 1;
    for (int $i = 0; $i < $a; $i++) {
        int t = p + q;
        p = q;
        q = t;
    }
    return p;""", """
    let p = 0;
    let q = 1;
    for (let $i = 0; $i < $a; $i++) {
        [p, q] = [q, p + q];
    }
    return p;"""),
    f("gcd", "gcd greatest_common_divisor",
      "returns the greatest common divisor of two numbers|computes the gcd of two integers", "PP", "I",
      lambda a, b, k: gcd(a, b), """
    while $b:
        $a, $b = $b, $a % $b
    return $a""", """
    while ($b != 0) {
        int t = $a % $b;
        $a = $b;
        $b = t;
    }
    return $a;""", """
    while ($b !== 0) {
        [$a, $b] = [$b, $a % $b];
    }
    return $a;"""),
    f("lcm", "lcm least_common_multiple",
      "returns the least common multiple of two numbers|computes the lcm of two integers", "PP", "I",
      lambda a, b, k: a * b // gcd(a, b), """
    $x, $s = $a, $b
    while $s:
        $x, $s = $s, $x % $s
    return $a * $b // $x"""),
    f("power", "power raise_to",
      "raises a number to a power|computes a to the power of b", "QN", "I", lambda a, b, k: a ** b, """
    $s = 1
    for _ in range($b):
        $s *= $a
    return $s""", """
    int $s = 1;
    for (int $i = 0; $i < $b; $i++) {
        $s *= $a;
    }
    return $s;""", """
    let $s = 1;
    for (let $i = 0; $i < $b; $i++) {
        $s *= $a;
    }
    return $s;"""),
    f("is_prime", "is_prime prime",
      "checks whether a number is prime|tells if a number is a prime number", "P", "B",
      lambda a, k: a > 1 and all(a % i for i in range(2, a)), """
    if $a < 2:
        return False
    for $i in range(2, $a):
        if $a % $i == 0:
            return False
    return True""", """
    if ($a < 2) {
        return 0;
    }
    for (int $i = 2; $i < $a; $i++) {
        if ($a % $i == 0) {
            return 0;
        }
    }
    return 1;""", """
    if ($a < 2) {
        return false;
    }
    for (let $i = 2; $i < $a; $i++) {
        if ($a % $i === 0) {
            return false;
        }
    }
    return true;"""),
    f("digit_sum", "digit_sum sum_digits",
      "returns the sum of the digits of a number|adds up the digits of a positive number", "P", "I",
      lambda a, k: digit_sum(a), """
    $s = 0
    while $a > 0:
        $s += $a % 10
        $a //= 10
    return $s""", """
    int $s = 0;
    while ($a > 0) {
        $s += $a % 10;
        $a /= 10;
    }
    return $s;""", """
    let $s = 0;
    while ($a > 0) {
        $s += $a % 10;
        $a = Math.floor($a / 10);
    }
    return $s;"""),
    f("count_digits", "count_digits num_digits",
      "returns the number of digits of a positive number|counts the digits of a number", "P", "I",
      lambda a, k: len(str(a)), """
    $s = 0
    while $a > 0:
        $s += 1
        $a //= 10
    return $s""", """
    int $s = 0;
    while ($a > 0) {
        $s += 1;
        $a /= 10;
    }
    return $s;""", """
    let $s = 0;
    while ($a > 0) {
        $s += 1;
        $a = Math.floor($a / 10);
    }
    return $s;"""),
    f("collatz", "collatz collatz_steps",
      "counts the Collatz steps until a number reaches 1|returns the length of the Collatz sequence of a number",
      "P", "I",
      lambda a, k: collatz(a), """
    $s = 0
    while $a != 1:
        if $a % 2 == 0:
            $a //= 2
        else:
            $a = 3 * $a + 1
        $s += 1
    return $s""", """
    int $s = 0;
    while ($a != 1) {
        if ($a % 2 == 0) {
            $a /= 2;
        } else {
            $a = 3 * $a + 1;
        }
        $s += 1;
    }
    return $s;""", """
    let $s = 0;
    while ($a !== 1) {
        if ($a % 2 === 0) {
            $a /= 2;
        } else {
            $a = 3 * $a + 1;
        }
        $s += 1;
    }
    return $s;"""),
    f("count_divisors", "count_divisors num_divisors",
      "counts the divisors of a number|returns how many divisors a number has", "P", "I",
      lambda a, k: sum(a % i == 0 for i in range(1, a + 1)), """
    $s = 0
    for $i in range(1, $a + 1):
        if $a % $i == 0:
            $s += 1
    return $s""", """
    int $s = 0;
    for (int $i = 1; $i <= $a; $i++) {
        if ($a % $i == 0) {
            $s += 1;
        }
    }
    return $s;""", """
    let $s = 0;
    for (let $i = 1; $i <= $a; $i++) {
        if ($a % $i === 0) {
            $s += 1;
        }
    }
    return $s;"""),
    expr("reverse_string", "reverse_string backwards",
         "reverses a string|returns a string in reverse order",
         "S", "S", lambda a, k: a[::-1], "$a[::-1]", "",
         '$a.split("").reverse().join("")'),
    expr("is_palindrome", "is_palindrome palindrome",
         "checks whether a string is a palindrome|tells if a string reads the same backwards", "S", "B",
         lambda a, k: a == a[::-1], "$a == $a[::-1]", "", '$a === $a.split("").reverse().join("")'),
    expr("to_upper", "to_upper shout",
         "converts a string to upper case|returns a string in capital letters",
         "S", "S", lambda a, k: a.upper(), "$a.upper()", "",
         "$a.toUpperCase()"),
    expr("repeat_string", "repeat_string repeated",
         "repeats a string $k times|returns a string $k times in a row",
         "S", "S", lambda a, k: a * k, "$a * $k", "",
         "$a.repeat($k)"),
    expr("count_words", "count_words num_words",
         "counts the words of a string|returns the number of words in a string",
         "S", "I", lambda a, k: len(a.split()),
         "len($a.split())", "", '$a.split(" ").length'),
    expr("first_char", "first_char initial",
         "returns the first character of a string|gives the initial of a string",
         "S", "S", lambda a, k: a[0], "$a[0]", ""),
    expr("last_char", "last_char final_char",
         "returns the last character of a string|gives the final character of a string",
         "S", "S", lambda a, k: a[-1],
         "$a[-1]", "", "$a[$a.length - 1]"),
    expr("string_length", "string_length text_length",
         "returns the length of a string|counts the characters of a string",
         "S", "I", lambda a, k: len(a), "len($a)",
         "", "$a.length"),
    expr("words", "words split_words",
         "splits a string into words|returns the list of words of a string",
         "S", "L", lambda a, k: a.split(), "$a.split()", "",
         '$a.split(" ")'),
    expr("no_spaces", "no_spaces strip_spaces",
         "removes all spaces from a string|returns a string without spaces",
         "S", "S", lambda a, k: a.replace(" ", ""),
         '$a.replace(" ", "")', "", '$a.replaceAll(" ", "")'),
    f("count_vowels", "count_vowels num_vowels",
      "counts the vowels in a string|returns how many vowels a string has", "S", "I",
      lambda a, k: sum(c in "aeiou" for c in a), """
    $s = 0
    for $x in $a:
        if $x in "aeiou":
            $s += 1
    return $s""", """
    int $s = 0;
    for (int $i = 0; $a[$i] != '\\0'; $i++) {
        if (strchr("aeiou", $a[$i])) {
            $s += 1;
        }
    }
    return $s;""", """
    let $s = 0;
    for (const $x of $a) {
        if ("aeiou".includes($x)) {
            $s += 1;
        }
    }
    return $s;"""),
    f("reverse_in_place", "reverse_in_place reverse_string reverse",
      "reverses a string in place|reverses a string", "R", "V",
      lambda a, k: a[::-1], "", """
    int $i = 0;
    int j = (int)strlen($a) - 1;
    while ($i < j) {
        char t = $a[$i];
        $a[$i] = $a[j];
        $a[j] = t;
        $i++;
        j--;
    }"""),
    f("string_length_c", "string_length text_length",
      "returns the length of a string|counts the characters of a string",
      "S", "I", lambda a, k: len(a), "", """
    int $s = 0;
    while ($a[$s] != '\\0') {
        $s++;
    }
    return $s;"""),
    f("is_palindrome_c", "is_palindrome palindrome",
      "checks whether a string is a palindrome|tells if a string reads the same backwards", "S", "B",
      lambda a, k: a == a[::-1], "", """
    int $i = 0;
    int j = (int)strlen($a) - 1;
    while ($i < j) {
        if ($a[$i] != $a[j]) {
            return 0;
        }
        $i++;
        j--;
    }
    return 1;"""),
    f("count_spaces", "count_spaces num_spaces",
      "counts the spaces in a string|returns the number of spaces in a string", "S", "I",
      lambda a, k: a.count(" "), '    return $a.count(" ")', """
    int $s = 0;
    for (int $i = 0; $a[$i] != '\\0'; $i++) {
        if ($a[$i] == ' ') {
            $s++;
        }
    }
    return $s;"""),
    f("longest_word", "longest_word longest",
      "returns the longest word of a string|finds the longest word in a string", "S", "S",
      lambda a, k: max(a.split(), key=len), "    return max($a.split(), key=len)"),
    f("count_chars", "count_chars histogram",
      "counts how often each character occurs in a string|returns a dictionary of character counts", "S", "D",
      lambda a, k: {c: a.count(c) for c in a}, """
    $s = {}
    for $x in $a:
        $s[$x] = $s.get($x, 0) + 1
    return $s"""),
    f("fizzbuzz", "fizzbuzz fizz",
      "returns Fizz for multiples of 3, Buzz for multiples of 5, FizzBuzz for both, and else the number as a string|computes the FizzBuzz word of a number",
      "P", "S", lambda a, k: ("Fizz" * (a % 3 == 0) + "Buzz" * (a % 5 == 0)) or str(a), """
    if $a % 15 == 0:
        return "FizzBuzz"
    if $a % 3 == 0:
        return "Fizz"
    if $a % 5 == 0:
        return "Buzz"
    return str($a)""", "", """
    if ($a % 15 === 0) {
        return "FizzBuzz";
    }
    if ($a % 3 === 0) {
        return "Fizz";
    }
    if ($a % 5 === 0) {
        return "Buzz";
    }
    return String($a);"""),
    f("binary", "to_binary binary",
      "returns the binary digits of a positive number as a string|converts a number to binary",
      "P", "S", lambda a, k: bin(a)[2:],
      "    return bin($a)[2:]", "", "    return $a.toString(2);"),
    f("grade", "grade passed",
      'returns "pass" if a number is at least $k and else "fail"|grades a score: "pass" from $k on, else "fail"',
      "I", "S",
      lambda a, k: "pass" if a >= k else "fail", """
    if $a >= $k:
        return "pass"
    return "fail\"""", "", """
    if ($a >= $k) {
        return "pass";
    }
    return "fail";"""),
    f("dot", "dot_product inner_product",
      "returns the dot product of two lists|multiplies two lists element by element and adds up", "LL", "I",
      lambda a, b, k: sum(x * y for x, y in zip(a, b)), "    return sum($x * $s for $x, $s in zip($a, $b))", "",
      "    return $a.reduce(($s, $x, $i) => $s + $x * $b[$i], 0);"),
    f("common", "common_items intersection",
      "returns the numbers that are in both lists|finds the common numbers of two lists", "LL", "L",
      lambda a, b, k: [x for x in a if x in b], "    return [$x for $x in $a if $x in $b]", "", "    return $a.filter(($x) => $b.includes($x));"),
]
