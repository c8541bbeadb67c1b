"""Speech commands with CTC: a recurrent network hears a recording, and spells the word that was said.

    taut run --workers 4 examples/speech_ctc.py                                       # on generated tones
    taut data get speech-commands                                                     # 2.4 GB
    taut run --workers 4 examples/speech_ctc.py --data data/speech-commands --words yes,no,up,down

--data is a folder of WAV files, each in a folder that is named by its word (Speech Commands), or with a name that begins
with its digit (`7_jackson_0.wav`, the Free Spoken Digit Dataset). The loop before taut, and with it:

    -for batch in DataLoader(dataset, batch_size=16, shuffle=True, collate_fn=padded):
    -    optimizer.zero_grad()
    -    ctc(model, batch).backward()
    -    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    -    optimizer.step()
    +with taut.join(model, optimizer, validate=right_words) as worker:
    +    for batch in worker.batches(dataset, batch_size=16, epochs=epochs, collate_fn=padded):
    +        worker.step(ctc(model, batch), clip_norm=5.0)
"""

import argparse
import itertools
import math
import wave
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import ctc_loss
from torch.nn.utils.rnn import pad_sequence

import taut

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LETTERS = " abcdefghijklmnopqrstuvwxyz"  # 0 is CTC's blank
RATE, BANDS = 8000, 24

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, help="folder of WAV files")
parser.add_argument("--words", help="only these, separated by commas")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--width", type=int, default=64, help="of the network, in each direction")
parser.add_argument("--samples", type=int, default=600, help="how many words to generate, without --data")
options = parser.parse_args()


def tones(samples, seed):
    """Make sounds: each letter of a word is a tone of its own, with its octave, in noise."""
    random = torch.Generator().manual_seed(seed)
    words = ("abba", "bead", "cab", "dad", "face", "fee") if options.words is None else options.words.split(",")
    made = []
    for choice in torch.randint(len(words), (samples,), generator=random).tolist():
        parts = []
        for letter in words[choice]:
            length = int(torch.randint(480, 800, (1,), generator=random))
            angle = 2 * math.pi * (250 + 110 * (ord(letter) - ord("a"))) / RATE * torch.arange(length)
            parts += [0.3 * angle.sin() + 0.2 * (2 * angle).sin(), torch.zeros(160)]
        sound = torch.cat(parts)
        made.append((sound + 0.02 * torch.randn(len(sound), generator=random), words[choice]))
    return made


def recordings(folder):
    """Read all WAV files of 16 bits, at 8,000 samples per second (every second one of 16,000)."""
    found = []
    for path in sorted(folder.rglob("*.wav")):
        digit = path.name.partition("_")[0]
        word = DIGITS[int(digit)] if digit.isdigit() and len(digit) == 1 else path.parent.name
        if not word.isalpha() or (options.words is not None and word not in options.words.split(",")):
            continue  # background noise
        with wave.open(str(path)) as file:
            if file.getsampwidth() == 2 and file.getnchannels() == 1:
                sound = torch.frombuffer(bytearray(file.readframes(RATE * 10)), dtype=torch.int16) / 32768
                found.append((sound[:: max(1, file.getframerate() // RATE)], word))
    return found


def spectrum(sound):
    """Return the logarithm of the energy in bands of frequency, for every 12 ms."""
    padded = torch.cat([sound, torch.zeros(max(0, 400 - len(sound)))])
    power = torch.stft(padded, 200, 100, window=torch.hann_window(200), return_complex=True).abs().square()
    energy = nn.functional.adaptive_avg_pool1d(power.T, BANDS)
    return ((energy + 1e-5).log() + 6) / 3


sounds = recordings(options.data) if options.data else tones(options.samples, seed=1)
if len(sounds) < 10:
    parser.error(f"{len(sounds)} words in {options.data}: expected a folder of WAV files")
mixed = torch.randperm(len(sounds), generator=torch.Generator().manual_seed(0)).tolist()
everything = [(spectrum(sounds[at][0]), torch.tensor([LETTERS.index(each) for each in sounds[at][1]])) for at in mixed]
test, dataset = everything[: len(mixed) // 10], everything[len(mixed) // 10 :]
device = taut.device()


class Recurrent(nn.Module):
    """LSTM layers in both directions, over pairs of frames; the logarithm of each letter's probability comes out."""

    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(2 * BANDS, options.width, num_layers=2, bidirectional=True)
        self.letters = nn.Linear(2 * options.width, len(LETTERS))

    def forward(self, frames):
        pairs = frames[: len(frames) // 2 * 2].unflatten(0, (-1, 2)).transpose(1, 2).flatten(2)
        return self.letters(self.layers(pairs)[0]).log_softmax(dim=2)


def padded(samples):
    """Return frames (time, sample, band) and letters of a batch, with the lengths of both."""
    frames, letters = zip(*samples, strict=True)
    lengths = torch.tensor([[len(each) // 2 for each in frames], [len(each) for each in letters]])
    return pad_sequence(frames), torch.cat(letters), lengths


def ctc(model, batch):
    """Return the loss: the probability of the letters, over all ways to place them in time (Graves et al. 2006)."""
    frames, letters, (times, counts) = batch
    return ctc_loss(model(frames.to(device)), letters, times, counts, zero_infinity=True)


def heard(scores):
    """Return the word: the best letter of each frame, without repetitions and blanks."""
    best = [0, *scores.argmax(dim=1).tolist()]
    return "".join(LETTERS[now] for before, now in itertools.pairwise(best) if now not in (0, before))


def right_words(model):
    """Return the share of test words that are spelled right."""
    said = ["".join(LETTERS[each] for each in letters) for _, letters in test]
    guesses = [heard(model(frames[:, None].to(device))[:, 0]) for frames, _ in test]
    return sum(guess == word for guess, word in zip(guesses, said, strict=True)) / len(test)


torch.manual_seed(0)
model = Recurrent().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

with taut.join(model, optimizer, validate=right_words) as worker:
    for batch in worker.batches(dataset, batch_size=16, epochs=options.epochs, collate_fn=padded):
        worker.step(ctc(model, batch), clip_norm=5.0)

worker.print(
    f"{100 * worker.score:.1f}% of {len(test)} test words spelled right after {worker.samples} samples of this worker"
)
