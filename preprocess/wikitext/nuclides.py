"""Templates of nuclides, by the name or the symbol of an element; see :mod:`preprocess.wikitext.renderers`."""

from .renderers import LOWERED, RAISED, Parameters, positional

_SYMBOLS = """
    H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr
    Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir
    Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl
    Mc Lv Ts Og Uue Ubn
"""
_NAMES = """
    hydrogen helium lithium beryllium boron carbon nitrogen oxygen fluorine neon sodium magnesium aluminium
    silicon phosphorus sulfur chlorine argon potassium calcium scandium titanium vanadium chromium manganese iron
    cobalt nickel copper zinc gallium germanium arsenic selenium bromine krypton rubidium strontium yttrium
    zirconium niobium molybdenum technetium ruthenium rhodium palladium silver cadmium indium tin antimony
    tellurium iodine xenon caesium barium lanthanum cerium praseodymium neodymium promethium samarium europium
    gadolinium terbium dysprosium holmium erbium thulium ytterbium lutetium hafnium tantalum tungsten rhenium
    osmium iridium platinum gold mercury thallium lead bismuth polonium astatine radon francium radium actinium
    thorium protactinium uranium neptunium plutonium americium curium berkelium californium einsteinium fermium
    mendelevium nobelium lawrencium rutherfordium dubnium seaborgium bohrium hassium meitnerium darmstadtium
    roentgenium copernicium nihonium flerovium moscovium livermorium tennessine oganesson ununennium unbinilium
"""
_SYMBOL = ["", *_SYMBOLS.split()]  # by number
_NUMBERS = {name: number for names in (_SYMBOLS.lower(), _NAMES) for number, name in enumerate(names.split(), 1)}
_NUMBERS |= {"aluminum": 13, "sulphur": 16, "cesium": 55, "ununtrium": 113, "ununpentium": 115, "ununoctium": 118}


def bare(values: Parameters) -> str:
    """{{SimpleNuclide|carbon|14}} → ¹⁴C"""
    element, mass = _element_and_mass(values)
    number = _NUMBERS.get(element.lower())
    return mass.translate(RAISED) + (_SYMBOL[number] if number else element)


def numbered(values: Parameters) -> str:
    """{{Nuclide|carbon|14}} → ¹⁴₆C"""
    element, mass = _element_and_mass(values)
    number = _NUMBERS.get(element.lower())
    return f"{mass.translate(RAISED)}{str(number).translate(LOWERED)}{_SYMBOL[number]}" if number else bare(values)


def _element_and_mass(values: Parameters) -> list[str]:
    return [*map(str.strip, positional(values)), "", ""][:2]
