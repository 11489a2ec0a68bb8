"""One-line faults in the kernels of devices: each makes other noise than the processor, or leaves a doubt undecided.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

DEVICES = "tests/noise/test_devices.py"
ROWS = f"{DEVICES}::test_rows_are_those_in_memory_and_no_number_is_drawn_there"
WRONG = f"{DEVICES}::test_numbers_as_wrong_as_they_may_be_change_nothing"
NUMBERS = f"{DEVICES}::test_numbers_have_the_bits_of_the_processor"
TAIL = f"{DEVICES}::test_what_is_far_in_the_tail_takes_its_bits_from_the_processor"
PARTS = f"{DEVICES}::test_parts_have_their_columns_of_the_whole_noise"

FAULTS = [
    (
        "noise/devices/words.py",
        "high = (block >> 32).to(tl.uint32)",
        "high = low * 0",
        "the counter ends after 2**32 blocks, and noise is repeated",
        NUMBERS,
    ),
    (
        "noise/devices/words.py",
        "% 64 - shift",
        "% 64",
        "rows of a width that is no multiple of 512 have the numbers of others",
        NUMBERS,
    ),
    (
        "noise/devices/kernels.py",
        "return (inside & ((middle < TAIL) | (tl.abs(shifted - down - 0.5) > 0.5 - doubt))).to(tl.int64)",
        "return (inside & (middle < TAIL)).to(tl.int64)",
        "doubts of feedback are ignored",
        WRONG,
    ),
    (
        "noise/devices/kernels.py",
        "bad = inside & (tl.abs(shifted - down - 0.5) > 0.5 - tl.load(doubts))",
        "bad = inside & (total != total)",
        "doubts of sums are ignored",
        WRONG,
    ),
    (
        "noise/devices/kernels.py",
        "CELL = tl.constexpr(0.75)",
        "CELL = tl.constexpr(0.03125)",
        "the width of cells is allowed for in part",
        f"{DEVICES}::test_a_wide_cell_is_in_doubt",
    ),
    (
        "noise/devices/kernels.py",
        "return ((column >= begin) & (column < stop) & (uniform(low, high) < TAIL)).to(tl.int64)",
        "return ((column >= begin) & (column < begin)).to(tl.int64)",
        "noise of a substitution has a largest value",
        TAIL,
    ),
    (
        "noise/devices/kernels.py",
        "(down.to(tl.int64) - whole - step).to(tl.int32)",
        "(down.to(tl.int64) + whole - step).to(tl.int32)",
        "the whole part of the past is added",
        ROWS,
    ),
    (
        "noise/devices/steps.py",
        "(lane >> 8) + 64 * j",
        "(lane >> 8) + j",
        "other columns are decided than those in doubt",
        WRONG,
    ),
    (
        "noise/devices/steps.py",
        "divmod(row * draws.width + start, TILE)",
        "divmod(row * target.shape[-1] + start, TILE)",
        "the rows of a part overlap, and have numbers of other rows",
        PARTS,
    ),
    (
        "noise/devices/columns.py",
        "output[columns] = torch.from_numpy(row).to(ring.device)",
        "pass",
        "what the processor decides is not written back",
        WRONG,
    ),
]
